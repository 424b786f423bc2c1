package v1alpha1

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
)

// MaxPoolName is how many characters the name of a pool may have: it is the value of a label.
const MaxPoolName = 63

// RenderedName returns the name of the RenderedMachineConfig with a content for a pool:
// "rendered-<pool>-" and 32 hexadecimal digits of a hash. Equal contents have equal names, however
// their JSON is written. Errors: the Ignition config is not JSON.
func RenderedName(pool string, spec *RenderedMachineConfigSpec) (string, error) {
	canonical := *spec
	if len(spec.Config.Raw) > 0 {
		config, err := canonicalJSON(spec.Config.Raw)
		if err != nil {
			return "", fmt.Errorf("spec.config: expected JSON: %w", err)
		}
		canonical.Config.Raw, canonical.Config.Object = config, nil
	}
	content, err := json.Marshal(canonical)
	if err != nil {
		return "", fmt.Errorf("encode the content of a RenderedMachineConfig: %w", err)
	}
	sum := sha256.Sum256(content)
	return "rendered-" + pool + "-" + hex.EncodeToString(sum[:16]), nil
}

// Verify reports whether the name of a RenderedMachineConfig is that of its content. An object that
// was deleted and created again with another content, or by another program, is not.
func (r *RenderedMachineConfig) Verify() bool {
	pool := PoolOfRendered(r.Name)
	if pool == "" {
		return false
	}
	name, err := RenderedName(pool, &r.Spec)
	return err == nil && name == r.Name
}

// PoolOfRendered returns the pool in the name of a RenderedMachineConfig; "" for a name that is
// none of one.
func PoolOfRendered(name string) string {
	end := strings.LastIndexByte(name, '-')
	pool, isRendered := strings.CutPrefix(name[:max(end, 0)], "rendered-")
	if !isRendered {
		return ""
	}
	return pool
}

// canonicalJSON returns a document with sorted keys and without white space.
func canonicalJSON(document []byte) ([]byte, error) {
	decoder := json.NewDecoder(bytes.NewReader(document))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		return nil, err
	}
	if decoder.More() {
		return nil, fmt.Errorf("one value, got more after byte %d", decoder.InputOffset())
	}
	return json.Marshal(value)
}
