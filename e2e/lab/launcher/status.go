package launcher

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"text/tabwriter"
)

// Status prints the processes of a lab and their health. It is an error if there is no lab.
func Status(ctx context.Context, folder Folder, out io.Writer) error {
	state, err := folder.ReadState()
	if absent(err) {
		return fmt.Errorf("there is no lab in %s", folder)
	}
	if err != nil {
		return err
	}
	launcher, ok := state.Processes[launcherName]
	if !ok || launcher.State().Gone() {
		return statusWithoutLauncher(state, folder)
	}
	client := NewClient(folder)
	processes, err := client.Processes(ctx)
	if err != nil {
		return err
	}
	health, err := client.Health(ctx)
	if err != nil {
		return err
	}
	var endpoints map[string]string
	if err := folder.readJSON(endpointsFile, &endpoints); err != nil {
		return err
	}
	fmt.Fprintf(out, "lab in %s: %s\n\n", folder, state.Options.String())
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "NAME\tPID\tSTATE\tSTARTS\tRSS\tADDRESS\tANSWERS")
	fmt.Fprintf(table, "%s\t%d\trunning\t1\t%s\t%s\t%s\n",
		launcherName, launcher.PID, mebibytes(launcher.RSS()), endpoints[launcherName], Healthy)
	for _, p := range processes {
		pid, what := "-", string(p.State)
		if p.PID != 0 {
			pid = strconv.Itoa(p.PID)
		}
		if p.Exit != "" {
			what += " (" + p.Exit + ")"
		}
		if p.Returns {
			what += ", will be restarted"
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%d\t%s\t%s\t%s\n", p.Name, pid, what, p.Starts, mebibytes(p.RSSBytes), endpoints[p.Name], health[p.Name])
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("printing: %w", err)
	}
	return nil
}

func statusWithoutLauncher(state State, folder Folder) error {
	live, err := state.live()
	if err != nil {
		return err
	}
	if len(live) == 0 {
		return fmt.Errorf("the lab in %s is down", folder)
	}
	var names []string
	for _, name := range slices.Sorted(maps.Keys(state.Processes)) {
		if !state.Processes[name].State().Gone() {
			names = append(names, name)
		}
	}
	return fmt.Errorf("the launcher of the lab in %s is gone, but %d processes live, %q of them started by it; lab down ends them",
		folder, len(live), names)
}

func mebibytes(bytes int64) string {
	if bytes == 0 {
		return "-"
	}
	return strconv.FormatInt(bytes>>20, 10) + " MiB"
}
