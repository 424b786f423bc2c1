package main

import (
	"errors"
	"fmt"
	"net"

	"github.com/machine-controller-fleet/machine-controller-fleet/internal/flags"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/serving"
)

// declareAutoscalers declares the flags of the port for cluster-autoscalers.
func declareAutoscalers(g *flags.Group, o *serving.MutualOptions) {
	g.Int(&o.Port, "autoscaler-port", 0, "port to serve cluster-autoscalers on that have the provider externalgrpc, over TLS 1.3; "+
		"their certificates name the namespace that each scales; 0 serves none", flags.OrZero)
	g.String(&o.Address, "autoscaler-address", "0.0.0.0", "IP address to serve cluster-autoscalers on")
	g.String(&o.CertFile, "autoscaler-tls-cert-file", "",
		"file with a certificate and its chain, PEM, for --autoscaler-port; read again when it changes; empty means none")
	g.String(&o.KeyFile, "autoscaler-tls-private-key-file", "",
		"file with the private key of --autoscaler-tls-cert-file, PEM; empty means none")
	g.String(&o.ClientCAFile, "autoscaler-client-ca-file", "", "file with the certificates, PEM, of authorities that sign those of "+
		"cluster-autoscalers, and that each may name any namespace; read again when it changes; empty means none")
}

func validateAutoscalers(o *serving.MutualOptions, other int) error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(net.ParseIP(o.Address) != nil, "--autoscaler-address: expected an IP address, got %q; 0.0.0.0 means all of this host", o.Address)
	check(o.Port <= 65535, "--autoscaler-port: expected 1 to 65535, or 0 for none, got %d; correct it", o.Port)
	check(o.Port == 0 || o.Port != other, "--autoscaler-port: expected another port than --port, got %d for both; change one of them", o.Port)
	for _, of := range []struct{ flag, file string }{
		{"--autoscaler-tls-cert-file", o.CertFile},
		{"--autoscaler-tls-private-key-file", o.KeyFile},
		{"--autoscaler-client-ca-file", o.ClientCAFile},
	} {
		check(o.Port == 0 || of.file != "", "%s: expected a file with --autoscaler-port, got none; name it", of.flag)
		check(o.Port != 0 || of.file == "", "--autoscaler-port: expected a port with %s, got none; set it, or leave out the file", of.flag)
	}
	return errors.Join(errs...)
}
