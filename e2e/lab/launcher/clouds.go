package launcher

import (
	"context"
	"fmt"
	"os"
)

const (
	cloudPrefix = "cloud-"
	// certificateSuffix ends the name of the file with the certificate of a cloud.
	certificateSuffix = ".pem"
)

// certificateOf returns the path of the certificate of a cloud in the folder of the lab.
func certificateOf(cloud string) string { return cloudsDir + "/" + cloud + certificateSuffix }

// cloudProcesses returns the clouds that the options name, besides cloudsim.
func (o *Options) cloudProcesses() ([]command, error) { return commandsOf("--clouds", o.Clouds) }

// bootClouds starts all clouds besides cloudsim, which runs their VMs, and waits until they listen.
// They listen with TLS, and write their certificates.
func (l *Launcher) bootClouds(ctx context.Context) error {
	clouds, err := l.options.cloudProcesses()
	if err != nil || len(clouds) == 0 {
		return err
	}
	if err := os.MkdirAll(l.options.folder().path(cloudsDir), 0o700); err != nil {
		return fmt.Errorf("creating the folder of clouds: %w", err)
	}
	ports, err := l.ports.take(ctx, len(clouds))
	if err != nil {
		return err
	}
	for i, c := range clouds {
		address := loopback(ports[i])
		args := []string{
			"--listen=" + address, "--certificate=" + l.options.folder().path(certificateOf(c.name)), "--cloudsim=" + l.fillIn(cloudPlace),
		}
		spec := l.spec(cloudPrefix+c.name, c.program, append(args, c.flags...))
		if err := l.bootProcess(ctx, spec, "https://"+address, dialProbe("tcp", address)); err != nil {
			return err
		}
	}
	return nil
}
