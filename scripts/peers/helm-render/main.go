// Renders a Helm chart with its default values and changes to them: Go's templates, sprig's functions
// and the two that Helm adds and charts cannot do without. Holds the values to the chart's schema first,
// as Helm does. NOTES.txt comes last, as comments. For tests; Helm itself is fifty times as large.
//
// usage: helm-render CHART [path.to.value=VALUE...]
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/template"

	"github.com/Masterminds/sprig/v3"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"gopkg.in/yaml.v3"
)

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "helm-render:", err)
		os.Exit(1)
	}
}

func load(path string) map[string]any {
	text, err := os.ReadFile(path)
	fail(err)
	var found map[string]any
	fail(yaml.Unmarshal(text, &found))
	return found
}

func set(values map[string]any, change string) error {
	path, text, isChange := strings.Cut(change, "=")
	if !isChange {
		return fmt.Errorf("%s is no path=VALUE", change)
	}
	parts := strings.Split(path, ".")
	for _, part := range parts[:len(parts)-1] {
		inner, isMap := values[part].(map[string]any)
		if !isMap {
			inner = map[string]any{}
			values[part] = inner
		}
		values = inner
	}
	last := parts[len(parts)-1]
	var value any
	if err := yaml.Unmarshal([]byte(text), &value); err != nil {
		return err
	}
	values[last] = value
	return nil
}

// Holds values to the schema beside them.
func check(directory string, values map[string]any) error {
	schema, err := jsonschema.NewCompiler().Compile(filepath.Join(directory, "values.schema.json"))
	if err != nil {
		return err
	}
	text, err := json.Marshal(values)
	if err != nil {
		return err
	}
	plain, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return err
	}
	return schema.Validate(plain)
}

// Numbers of a file of values are floats for Helm, which reads YAML by way of JSON.
func asHelmReads(values map[string]any) (map[string]any, error) {
	text, err := json.Marshal(values)
	if err != nil {
		return nil, err
	}
	var read map[string]any
	return read, json.Unmarshal(text, &read)
}

func main() {
	if len(os.Args) < 2 {
		fail(fmt.Errorf("usage: helm-render CHART [path.to.value=VALUE...]"))
	}
	directory := os.Args[1]
	chart, values := load(filepath.Join(directory, "Chart.yaml")), load(filepath.Join(directory, "values.yaml"))
	for _, change := range os.Args[2:] {
		fail(set(values, change))
	}
	fail(check(directory, values))
	values, err := asHelmReads(values)
	fail(err)
	// As in Helm, names of the chart's file begin with a capital letter.
	about := map[string]any{}
	for name, value := range chart {
		about[strings.ToUpper(name[:1])+name[1:]] = value
	}
	data := map[string]any{
		"Values":  values,
		"Chart":   about,
		"Release": map[string]any{"Name": "release", "Service": "Helm", "Namespace": "default"},
	}
	all := template.New("chart").Option("missingkey=error")
	all.Funcs(sprig.TxtFuncMap()).Funcs(template.FuncMap{
		"toYaml": func(value any) (string, error) {
			text, err := yaml.Marshal(value)
			return strings.TrimSuffix(string(text), "\n"), err
		},
		"include": func(name string, data any) (string, error) {
			var text bytes.Buffer
			err := all.ExecuteTemplate(&text, name, data)
			return text.String(), err
		},
	})
	paths, err := filepath.Glob(filepath.Join(directory, "templates", "*"))
	fail(err)
	for _, path := range paths {
		text, err := os.ReadFile(path)
		fail(err)
		_, err = all.New(filepath.Base(path)).Parse(string(text))
		fail(err)
	}
	rendered, notes := "", ""
	for _, path := range paths {
		if strings.HasPrefix(filepath.Base(path), "_") {
			continue
		}
		var text bytes.Buffer
		fail(all.ExecuteTemplate(&text, filepath.Base(path), data))
		if filepath.Base(path) == "NOTES.txt" {
			notes = "# " + strings.ReplaceAll(text.String(), "\n", "\n# ")
			continue
		}
		rendered += "---\n" + text.String()
	}
	fmt.Println(rendered + notes)
}
