package flags

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
	"sigs.k8s.io/yaml"
)

// configFlag names the file. The file cannot contain it.
const configFlag = "config"

// readFile sets the flags that the file has and the command line has not.
func (s *Set) readFile() error {
	content, err := os.ReadFile(s.file)
	if err != nil {
		return fmt.Errorf("--%s: %w; expected a YAML file with the names of flags as keys", configFlag, err)
	}
	values, err := decode(content)
	if err != nil {
		return fmt.Errorf("%s: expected YAML with the names of flags as keys, such as \"port: 10258\": %w", s.file, err)
	}
	var errs []error
	for _, key := range slices.Sorted(maps.Keys(values)) {
		errs = append(errs, s.setFromFile(key, values[key]))
	}
	return errors.Join(errs...)
}

// setFromFile sets one flag, unless the command line has it.
func (s *Set) setFromFile(key string, value any) error {
	d := s.find(key)
	if d == nil {
		return fmt.Errorf("%s: there is no flag %q; the nearest is %q, and --help lists all", s.file, key, s.nearest(key))
	}
	if key == configFlag {
		return fmt.Errorf("%s: %s: a file cannot name another file; remove it", s.file, key)
	}
	if d.Changed {
		return nil
	}
	d.fromFile = s.file
	text, err := d.text(value)
	if err != nil {
		return err
	}
	return s.explain(s.parser.Set(key, text))
}

// decode reads the file's keys. Numbers keep the digits that they have.
func decode(content []byte) (map[string]any, error) {
	asJSON, err := yaml.YAMLToJSONStrict(content)
	if err != nil {
		return nil, err
	}
	decoder := json.NewDecoder(bytes.NewReader(asJSON))
	decoder.UseNumber()
	var values map[string]any
	if err := decoder.Decode(&values); err != nil {
		return nil, err
	}
	documents := yamlv3.NewDecoder(bytes.NewReader(content))
	var written map[string]yamlv3.Node
	if err := documents.Decode(&written); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if err := documents.Decode(&yamlv3.Node{}); !errors.Is(err, io.EOF) {
		return nil, errors.New("expected one YAML document, got another one after a line of ---, which would have no effect")
	}
	for key, value := range values {
		if _, ok := value.(json.Number); ok {
			values[key] = json.Number(textOf(written[key]))
		}
	}
	return values, nil
}

// textOf returns a number as it is in the file, where the YAML reader would have returned 8 for
// 010.
func textOf(number yamlv3.Node) string {
	if number.Alias != nil {
		number = *number.Alias
	}
	return number.Value
}

// text is a value of the file in the format of the command line. Text must be text in the file,
// too: YAML reads 0123 as 83, and no as false.
func (d *declared) text(value any) (string, error) {
	words, isList := value.([]any)
	kind := d.Value.Type()
	switch value := value.(type) {
	case string:
		return value, nil
	case json.Number:
		if kind != "string" && kind != "list" {
			return value.String(), nil
		}
	case bool:
		if kind == "bool" {
			return fmt.Sprint(value), nil
		}
	}
	if isList && kind == "list" {
		texts := make([]string, len(words))
		for i, word := range words {
			var ok bool
			if texts[i], ok = word.(string); !ok {
				return "", d.expected("a list of texts, in quotes where YAML would read another type", fmt.Sprint(word))
			}
		}
		return strings.Join(texts, ","), nil
	}
	if value == nil {
		return "", d.expected(d.expectation(), "nothing")
	}
	return "", d.expected(d.expectation(), fmt.Sprint(value))
}
