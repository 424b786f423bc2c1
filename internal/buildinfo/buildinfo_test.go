package buildinfo

import (
	"runtime/debug"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDescribe(t *testing.T) {
	checkout := func(version, modified string) *debug.BuildInfo {
		return &debug.BuildInfo{Main: debug.Module{Version: version}, Settings: []debug.BuildSetting{
			{Key: "vcs", Value: "git"},
			{Key: "vcs.revision", Value: "abc"},
			{Key: "vcs.time", Value: "2026-01-02T03:04:05Z"},
			{Key: "vcs.modified", Value: modified},
		}}
	}
	linked := Info{Version: "v1.2.3", Commit: "def", Date: "2026-06-07T08:09:10Z", Go: "go1"}
	for name, tc := range map[string]struct {
		linked   Info
		recorded *debug.BuildInfo
		want     Info
	}{
		"nothing is recorded": {Info{Go: "go1"}, nil, Info{Unknown, Unknown, Unknown, "go1"}},
		"built without its checkout": {
			Info{Go: "go1"}, &debug.BuildInfo{Main: debug.Module{Version: "(devel)"}}, Info{Unknown, Unknown, Unknown, "go1"},
		},
		"installed as a module": {
			Info{Go: "go1"}, &debug.BuildInfo{Main: debug.Module{Version: "v0.9.0"}}, Info{"v0.9.0", Unknown, Unknown, "go1"},
		},
		"a clean checkout": {
			Info{Go: "go1"}, checkout("v0.0.0-1-abc", "false"), Info{"v0.0.0-1-abc", "abc", "2026-01-02T03:04:05Z", "go1"},
		},
		"a checkout with changes": {
			Info{Go: "go1"}, checkout("v0.0.0-1-abc+dirty", "true"), Info{"v0.0.0-1-abc+dirty", "abc-dirty", "2026-01-02T03:04:05Z", "go1"},
		},
		"only the version is linked": {
			Info{Version: "v1.2.3", Go: "go1"}, checkout("(devel)", "false"), Info{"v1.2.3", "abc", "2026-01-02T03:04:05Z", "go1"},
		},
		"the linker has precedence":     {linked, checkout("v0.0.0-1-abc", "true"), linked},
		"the linker without a checkout": {linked, nil, linked},
	} {
		if diff := cmp.Diff(tc.want, describe(tc.linked, tc.recorded)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestReadLeavesNoFieldEmpty(t *testing.T) {
	if i := Read(); i.Version == "" || i.Commit == "" || i.Date == "" || i.Go == "" {
		t.Errorf("got %+v", i)
	}
}
