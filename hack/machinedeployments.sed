# Limits and rules of labels, annotations and taints in the template of a MachineDeployment: what an API server would refuse on a Machine, or on a
# Node, whose VM exists by then. Fields of types of another module cannot have markers. The API server does not apply a rule to a value that has not
# changed, unless it is of the wrong type: so values of labels have a pattern, and keys that are stored may stay. The same for each taint would
# cost more than the API server allows. There is no library of formats before Kubernetes 1.32. MachineSets and
# Machines do not have these rules: they are created from templates that are stored already.
/^ \{20,\}labels:$/,/^ *type: object$/ {
  s/^\( *\)type: string$/\1maxLength: 63\n\1pattern: ^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$\n&/
  s/^\( *\)type: object$/\1maxProperties: 1000\n&\n\1x-kubernetes-validations:\n\1- rule: 'self.all(k, oldSelf.hasValue() \&\& k in oldSelf.value() || k.matches("^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*\/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$"))'\n\1  optionalOldSelf: true\n\1  message: must have keys as labels have them; the API server would refuse the Machine, or all of nodeTemplate when the VM has joined/
}
/^ \{20,\}annotations:$/,/^ *type: object$/ {
  s/^\( *\)type: object$/\1maxProperties: 1000\n&\n\1x-kubernetes-validations:\n\1- rule: 'self.all(k, oldSelf.hasValue() \&\& k in oldSelf.value() || k.matches("^([A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?([.][A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?)*\/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$"))'\n\1  optionalOldSelf: true\n\1  message: must have keys as labels have them; the API server would refuse the Machine, or all of nodeTemplate when the VM has joined/
}
/^ \{20,\}taints:$/,/^ *type: array$/ {
  s/^\( *\)type: string$/\1maxLength: 317\n&/
  s/^\( *\)type: array$/\1maxItems: 100\n&\n\1x-kubernetes-validations:\n\1- rule: 'self.all(t, t.effect in ["NoSchedule", "PreferNoSchedule", "NoExecute"] \&\& t.key.matches("^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*\/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$") \&\& (!has(t.value) || t.value.matches("^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$")))'\n\1  message: must have keys and values as labels have them, and the effect NoSchedule, PreferNoSchedule or NoExecute; the API server would refuse all of nodeTemplate when the VM has joined/
}
