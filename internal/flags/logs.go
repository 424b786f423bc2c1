package flags

import (
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"

	logsapi "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/component-base/logs/json/register" // the format json
	"k8s.io/klog/v2"
)

// mostVerbose is the highest level that is logged, regardless of what the flags are: from level 8
// on, client-go logs the bodies of requests and answers, with Secrets, bootstrap tokens and the
// tokens of readers of metrics in them.
const mostVerbose = 7

// Logs are the flags of the log. Declare sets their defaults.
type Logs struct{ Config *logsapi.LoggingConfiguration }

// logFormats are the values of --logging-format.
var logFormats = []string{logsapi.DefaultLogFormat, logsapi.JSONLogFormat}

// Declare declares the flags.
func (l *Logs) Declare(g *Group) {
	l.Config = logsapi.NewLoggingConfiguration()
	all := flag.NewFlagSet("logs", flag.ContinueOnError)
	all.StringVar(&l.Config.Format, "logging-format", logsapi.DefaultLogFormat, "")
	all.Var(logsapi.VerbosityLevelPflag(&l.Config.Verbosity), "v", "")
	all.Var(logsapi.VModuleConfigurationPflag(&l.Config.VModule), "vmodule", "")
	g.Go(all.Lookup("logging-format"), logsapi.DefaultLogFormat,
		"format of the log, which is written to standard error: text, or json with one object in each line")
	g.Go(all.Lookup("v"), "0",
		fmt.Sprintf("how much is logged: 0 to 10; levels above %d are the same as %d, because they would have the content of Secrets",
			mostVerbose, mostVerbose))
	g.Go(all.Lookup("vmodule"), "",
		"how much is logged from single source files: pattern=N, with commas between them, at most as with --v; not with --logging-format=json")
}

// Validate checks the values. Errors: those of each flag that has a wrong one.
func (l *Logs) Validate() error {
	var errs []error
	if !slices.Contains(logFormats, l.Config.Format) {
		errs = append(errs, fmt.Errorf("--logging-format: expected %s, got %q", strings.Join(logFormats, " or "), l.Config.Format))
	}
	if l.Config.Format == logsapi.JSONLogFormat && len(l.Config.VModule) > 0 {
		errs = append(errs, fmt.Errorf("--vmodule: expected none with --logging-format=json, got %q; remove one of both",
			logsapi.VModuleConfigurationPflag(&l.Config.VModule)))
	}
	return errors.Join(errs...)
}

// Apply makes klog write the log of the process as the flags configure it, to standard error unless
// to has other writers. It is called once, before anything is logged by another goroutine. Errors:
// invalid flags.
func (l *Logs) Apply(to *logsapi.LoggingOptions) error {
	if err := logsapi.ValidateAndApplyWithOptions(l.limited(), to, nil); err != nil {
		return fmt.Errorf("--logging-format, --v, --vmodule: %w", err)
	}
	if l.isLimited() {
		klog.Background().Info("Limited the verbosity of the log: above it, the log has the content of Secrets", "requested", l.Config.Verbosity,
			"limit", mostVerbose)
	}
	return nil
}

// limited returns the configuration of the log with levels of at most mostVerbose.
func (l *Logs) limited() *logsapi.LoggingConfiguration {
	limited := l.Config.DeepCopy()
	limited.Verbosity = min(limited.Verbosity, mostVerbose)
	for i := range limited.VModule {
		limited.VModule[i].Verbosity = min(limited.VModule[i].Verbosity, mostVerbose)
	}
	return limited
}

func (l *Logs) isLimited() bool {
	return l.Config.Verbosity > mostVerbose ||
		slices.ContainsFunc(l.Config.VModule, func(item logsapi.VModuleItem) bool { return item.Verbosity > mostVerbose })
}
