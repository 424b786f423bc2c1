package launcher

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"

	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/lab/controlplane"
	"github.com/machine-controller-fleet/machine-controller-fleet/e2e/lab/proxy"
)

// The links of a replica: the proxies between it and the API servers, and the cloud. With one
// cluster the first two connect to the same server, and are still two.
const (
	controlLink = "control"
	targetLink  = "target"
	cloudLink   = "cloud"
)

var links = [...]string{controlLink, targetLink, cloudLink}

// Link is a proxy between a process of the fleet and a server.
type Link struct {
	// Process is the name of the process, Link that of the server: control, target or cloud.
	Process string `json:"process"`
	Link    string `json:"link"`
	proxy.Status
}

// linkName is the name of the proxy.
func linkName(process, link string) string { return process + "/" + link }

func asLink(status proxy.Status) Link {
	process, link, _ := strings.Cut(status.Name, "/")
	return Link{Process: process, Link: link, Status: status}
}

func (l *Launcher) links() []Link {
	list := []Link{}
	for _, status := range l.proxies.List() {
		list = append(list, asLink(status))
	}
	return list
}

// upstreams are the addresses of the servers, by link.
func (l *Launcher) upstreams() (map[string]string, error) {
	l.mu.Lock()
	cloud := l.endpoints[cloudsimName]
	l.mu.Unlock()
	addresses := map[string]string{}
	for link, server := range map[string]string{controlLink: l.control.Server(), targetLink: l.target.Server(), cloudLink: cloud} {
		address, err := url.Parse(server)
		if err != nil {
			return nil, fmt.Errorf("the server behind %s: %w", link, err)
		}
		addresses[link] = address.Host
	}
	return addresses, nil
}

// openLinks creates a pod's proxies, one at each port, and the kubeconfigs with their addresses.
func (l *Launcher) openLinks(pod Pod, ports []int) error {
	upstreams, err := l.upstreams()
	if err != nil {
		return err
	}
	for i, link := range links {
		if err := l.proxies.Open(linkName(pod.Name, link), loopback(ports[i]), upstreams[link]); err != nil {
			return err
		}
	}
	user := controlplane.Subject{User: pod.Replica, Groups: []string{fleetGroup}}
	var errs []error
	for link, cluster := range map[string]*controlplane.Cluster{controlLink: l.control, targetLink: l.target} {
		kubeconfig, err := cluster.KubeconfigVia("https://"+l.linkAddress(pod, link), user)
		if err == nil {
			err = l.options.folder().writeFile(kubeconfigOf(pod, link), kubeconfig)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func kubeconfigOf(pod Pod, link string) string { return pod.Name + "." + link + ".kubeconfig" }

// linkAddress returns the address of the proxy of a link; "" if there is none.
func (l *Launcher) linkAddress(pod Pod, link string) string {
	for _, status := range l.proxies.List() {
		if status.Name == linkName(pod.Name, link) {
			return status.Listen
		}
	}
	return ""
}

// closeLinks closes the proxies of openLinks.
func (l *Launcher) closeLinks(pod Pod) error {
	for _, link := range links {
		l.proxies.Close(linkName(pod.Name, link))
	}
	folder := l.options.folder()
	return errors.Join(os.Remove(folder.path(kubeconfigOf(pod, controlLink))), os.Remove(folder.path(kubeconfigOf(pod, targetLink))))
}

// setFault changes the fault of one link of a process.
func (l *Launcher) setFault(ctx context.Context, process, link string, fault proxy.Fault) (Link, error) {
	status, err := l.proxies.SetFault(ctx, linkName(process, link), fault)
	return asLink(status), err
}
