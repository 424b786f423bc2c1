// Package cloudconfig reads the part of cloud-init's #cloud-config that docs/operations/machine-config.md uses for the first configuration of
// a machine: write_files, and runcmd with systemctl. Anything else is an error, because a machine that skips a part of its user data
// shows nothing about it. Package vm carries it out.
package cloudconfig
