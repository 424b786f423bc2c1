package desired

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	ignition "github.com/coreos/ignition/v2/config/v3_5"
	"github.com/coreos/ignition/v2/config/v3_5/types"
	"sigs.k8s.io/yaml"

	"github.com/machine-controller-fleet/machine-controller-fleet/apis/fleet/v1alpha1"
	"github.com/machine-controller-fleet/machine-controller-fleet/internal/machineconfig/daemon/plan"
)

// MaxConfig is the size of a configuration in bytes. The API server accepts no larger object.
const MaxConfig = 3 << 20

// Config is a configuration that was read and is valid.
type Config struct {
	// Name is that of the RenderedMachineConfig; that of a bare Ignition config has its digest.
	Name string
	// Content is the configuration as Parse accepts it.
	Content []byte
	Policy  plan.Policy
	// Fields are the fields that no transaction can apply, by name, as JSON.
	Fields map[string]string

	ignition types.Config
}

// Parse reads a RenderedMachineConfig, a MachineConfig or an Ignition config, as JSON or YAML. A
// field of an object that this version does not know is an error: it may be one that has to be
// applied.
func Parse(content []byte) (Config, error) {
	if len(content) > MaxConfig {
		return Config{}, fmt.Errorf("configuration: expected at most %d bytes, got %d", MaxConfig, len(content))
	}
	raw, err := yaml.YAMLToJSON(content)
	if err != nil {
		return Config{}, errors.New("configuration: expected JSON or YAML") // the parser's message quotes content
	}
	var bare struct {
		Ignition json.RawMessage `json:"ignition"`
	}
	if err := json.Unmarshal(raw, &bare); err == nil && bare.Ignition != nil {
		var spec v1alpha1.RenderedMachineConfigSpec
		spec.Config.Raw = raw
		return fromSpec("ignition-"+plan.Digest(content)[:12], spec, content)
	}
	var object v1alpha1.RenderedMachineConfig
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&object); err != nil {
		return Config{}, fmt.Errorf("configuration: expected a RenderedMachineConfig, a MachineConfig or an Ignition config: %w", typeOnly(err))
	}
	if object.Name == "" {
		return Config{}, errors.New("configuration: expected metadata.name, or a field ignition")
	}
	return fromSpec(object.Name, object.Spec, content)
}

// FromObject returns the configuration of a RenderedMachineConfig.
func FromObject(o *v1alpha1.RenderedMachineConfig) (Config, error) {
	kept := v1alpha1.RenderedMachineConfig{TypeMeta: o.TypeMeta, Spec: o.Spec}
	kept.Name = o.Name
	content, err := json.Marshal(kept)
	if err != nil {
		return Config{}, fmt.Errorf("configuration %s: %w", o.Name, err)
	}
	return Parse(content)
}

func fromSpec(name string, spec v1alpha1.RenderedMachineConfigSpec, content []byte) (Config, error) {
	c := Config{Name: name, Content: content, Policy: spec.Actions, Fields: map[string]string{}}
	if err := c.Policy.Check(); err != nil {
		return Config{}, fmt.Errorf("configuration %s: %w", name, err)
	}
	if len(spec.Config.Raw) > 0 {
		parsed, report, err := ignition.ParseCompatibleVersion(spec.Config.Raw)
		if err != nil {
			for _, entry := range report.Entries { // its messages name fields
				return Config{}, fmt.Errorf("configuration %s: not a valid Ignition config of version 3.0 to 3.5: %s at %s",
					name, entry.Message, entry.Context)
			}
			return Config{}, fmt.Errorf("configuration %s: not a valid Ignition config of version 3.0 to 3.5: %w", name, err)
		}
		c.ignition = parsed
	}
	c.set("kernelArguments", spec.KernelArguments)
	c.set("extensions", spec.Extensions)
	c.set("fips", spec.FIPS)
	c.set("osImageURL", spec.OSImageURL)
	if spec.KernelType != v1alpha1.KernelDefault {
		c.set("kernelType", spec.KernelType)
	}
	c.setIgnition()
	return c, nil
}

// set records a field that no transaction can apply, unless it is empty.
func (c *Config) set(field string, value any) {
	if v := reflect.ValueOf(value); v.IsZero() || v.Kind() == reflect.Slice && v.Len() == 0 {
		return
	}
	text, err := json.Marshal(value)
	if err != nil {
		text = fmt.Append(nil, err) // no type here returns one; it would differ from any value
	}
	if string(text) != "{}" {
		c.Fields[field] = string(text)
	}
}

// setIgnition records the fields of the Ignition config that no transaction can apply.
func (c *Config) setIgnition() {
	i := c.ignition
	c.set("config.ignition.config", i.Ignition.Config)
	c.set("config.ignition.proxy", i.Ignition.Proxy)
	c.set("config.ignition.security", i.Ignition.Security)
	c.set("config.ignition.timeouts", i.Ignition.Timeouts)
	c.set("config.kernelArguments", i.KernelArguments)
	c.set("config.passwd.groups", i.Passwd.Groups)
	c.set("config.storage.directories", i.Storage.Directories)
	c.set("config.storage.disks", i.Storage.Disks)
	c.set("config.storage.filesystems", i.Storage.Filesystems)
	c.set("config.storage.links", i.Storage.Links)
	c.set("config.storage.luks", i.Storage.Luks)
	c.set("config.storage.raid", i.Storage.Raid)
	for _, user := range i.Passwd.Users {
		other := user
		other.SSHAuthorizedKeys, other.Name = nil, ""
		if !reflect.ValueOf(other).IsZero() {
			c.set(fmt.Sprintf("config.passwd.users[%s]", user.Name), other)
		}
	}
	for _, file := range i.Storage.Files {
		c.set(fmt.Sprintf("config.storage.files[%s].append", file.Path), file.Append)
		if !isInline(file.Contents) {
			c.set(fmt.Sprintf("config.storage.files[%s].contents.source", file.Path), file.Contents)
		}
	}
}

// typeOnly removes the content from an error of the JSON parser.
func typeOnly(err error) error {
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return fmt.Errorf("field %s cannot be a %s", wrong.Field, kindOf(wrong.Value))
	}
	return errors.New("it has a field that this version of the daemon does not know, or a value of another type")
}

// kindOf returns the type in the parser's description of a value, which may be followed by the
// value.
func kindOf(value string) string {
	for _, kind := range []string{"number", "string", "bool", "array", "object"} {
		if len(value) >= len(kind) && value[:len(kind)] == kind {
			return kind
		}
	}
	return "value of that type"
}
