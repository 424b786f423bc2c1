package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/buildinfo"
)

// newVersionCommand returns the command that prints the build, as --version does.
func newVersionCommand(build buildinfo.Info) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print version, commit, date of the commit, and Go's version",
		Long: "Print version, commit, date of the commit, and Go's version. What was not recorded when the binary\nwas built is " +
			buildinfo.Unknown + ".",
		Args: cobra.NoArgs,
		Run:  func(cmd *cobra.Command, _ []string) { fmt.Fprintln(cmd.OutOrStdout(), build) },
	}
}
