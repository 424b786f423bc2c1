// Command machine-config-daemon brings a machine to a configuration of files, systemd units and SSH
// keys, and reports on its Node. docs/operations/machine-config-daemon.md describes how it is run.
//
// This package has the wiring: flags, the file system, clients and processes. What it does is in
// internal/machineconfig/daemon.
package main
