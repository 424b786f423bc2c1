package launcher

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// Guide prints how to use a lab that is up.
func Guide(options Options, out io.Writer) error {
	folder := options.folder()
	var endpoints map[string]string
	if err := folder.readJSON(endpointsFile, &endpoints); err != nil {
		return err
	}
	fmt.Fprintf(out, "\nThe lab is up. To look around:\n\n  export KUBECONFIG=%s\n  %s get mcd,mcs,mc,nodes\n",
		folder.path(adminKubeconfig), options.binary("kubectl"))
	if options.twoClusters() {
		fmt.Fprintf(out, "  %s --kubeconfig=%s get nodes   # in the target cluster\n", options.binary("kubectl"), folder.path(targetKubeconfig))
	}
	if options.landscape() {
		fmt.Fprintf(out, "  %s --kubeconfig=%s/NAME.kubeconfig get nodes   # in the target cluster of namespace NAME: %d real, %d light\n",
			options.binary("kubectl"), folder.path(membersFolder), options.Clusters, options.Light)
	}
	self := options.binary("lab")
	if jaeger := endpoints[jaegerName]; jaeger != "" {
		fmt.Fprintf(out, "  %s trace --dir=%s MACHINE   # the life of a machine; Jaeger is at %s\n", self, options.Dir, jaeger)
	}
	for _, name := range slices.Sorted(maps.Keys(endpoints)) {
		if strings.HasPrefix(name, fleetPrefix) {
			fmt.Fprintf(out, "  %s/page/   # the whole fleet in a browser; any replica serves it\n", endpoints[name])
			break
		}
	}
	fmt.Fprintf(out, "  curl %s/v1/instances\n\n  %s status --dir=%s\n  %s down --dir=%s\n\nLogs are in %s.\n",
		endpoints[cloudsimName], self, options.Dir, self, options.Dir, folder.path(logsDir))
	return nil
}
