package main

import (
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"

	logsapi "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/component-base/logs/json/register" // the format json
	"k8s.io/klog/v2"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/flags"
)

// mostVerbose is the highest level that is logged, whatever the flags are: from level 8 on, client-go logs the bodies of requests and
// answers, with Secrets, bootstrap tokens and the tokens of readers of metrics in them.
const mostVerbose = 7

// logOptions are the flags of the log.
type logOptions struct{ config *logsapi.LoggingConfiguration }

// logFormats are the values of --logging-format.
var logFormats = []string{logsapi.DefaultLogFormat, logsapi.JSONLogFormat}

func (o *logOptions) declare(g *flags.Group) {
	o.config = logsapi.NewLoggingConfiguration()
	all := flag.NewFlagSet("logs", flag.ContinueOnError)
	all.StringVar(&o.config.Format, "logging-format", logsapi.DefaultLogFormat, "")
	all.Var(logsapi.VerbosityLevelPflag(&o.config.Verbosity), "v", "")
	all.Var(logsapi.VModuleConfigurationPflag(&o.config.VModule), "vmodule", "")
	g.Go(all.Lookup("logging-format"), logsapi.DefaultLogFormat, "format of the log, which is written to standard error: text, or json with one object in each line")
	g.Go(all.Lookup("v"), "0", fmt.Sprintf("how much is logged: 0 to 10; levels above %d are the same as %d, because they would have the content of Secrets", mostVerbose, mostVerbose))
	g.Go(all.Lookup("vmodule"), "", "how much is logged from single source files: pattern=N, with commas between them, at most as with --v; not with --logging-format=json")
}

func (o *logOptions) validate() error {
	var errs []error
	if !slices.Contains(logFormats, o.config.Format) {
		errs = append(errs, fmt.Errorf("--logging-format: expected %s, got %q", strings.Join(logFormats, " or "), o.config.Format))
	}
	if o.config.Format == logsapi.JSONLogFormat && len(o.config.VModule) > 0 {
		errs = append(errs, fmt.Errorf("--vmodule: expected none with --logging-format=json, got %q; remove one of both", logsapi.VModuleConfigurationPflag(&o.config.VModule)))
	}
	return errors.Join(errs...)
}

// apply makes klog write the log of the process as the flags configure it, to standard error unless to has other writers. It is called
// once, before anything is logged by another goroutine. Errors: invalid flags.
func (o *logOptions) apply(to *logsapi.LoggingOptions) error {
	if err := logsapi.ValidateAndApplyWithOptions(o.limited(), to, nil); err != nil {
		return fmt.Errorf("--logging-format, --v, --vmodule: %w", err)
	}
	if o.isLimited() {
		klog.Background().Info("Limited the verbosity of the log: above it, the log has the content of Secrets", "requested", o.config.Verbosity, "limit", mostVerbose)
	}
	return nil
}

// limited returns the configuration of the log with levels of at most mostVerbose.
func (o *logOptions) limited() *logsapi.LoggingConfiguration {
	limited := o.config.DeepCopy()
	limited.Verbosity = min(limited.Verbosity, mostVerbose)
	for i := range limited.VModule {
		limited.VModule[i].Verbosity = min(limited.VModule[i].Verbosity, mostVerbose)
	}
	return limited
}

func (o *logOptions) isLimited() bool {
	return o.config.Verbosity > mostVerbose || slices.ContainsFunc(o.config.VModule, func(item logsapi.VModuleItem) bool { return item.Verbosity > mostVerbose })
}
