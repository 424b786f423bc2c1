// Package desired turns a rendered configuration into the tree that machine-config-daemon plans
// with: a map from paths to what has to be there. It sends no calls: what it needs of the machine,
// such as the IDs of users, is passed to it.
//
// It applies files with data URLs, systemd units with drop-ins, whether units are enabled or
// masked, and SSH keys of users that exist. Enabling a unit is the links that its [Install] section
// describes: then it is part of the transaction, which a call of systemctl is not. Where a unit
// does not say whether it is enabled, its links stay as they are.
//
// Every other field is returned by name with its value, to be compared with that of the
// configuration before.
//
// Configurations may be hostile. Sizes are bounded, also those of compressed contents, and names
// are checked before they become paths. Errors and refusals name fields, and never content.
package desired
