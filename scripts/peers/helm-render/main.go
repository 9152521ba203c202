// Renders a Helm chart with its default values and changes to them: Go's templates, sprig's functions
// and the three that Helm adds and charts cannot do without. For tests; Helm itself is fifty times as
// large.
//
// usage: helm-render CHART [path.to.value=VALUE...]
package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/template"

	"github.com/Masterminds/sprig/v3"
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
			return fmt.Errorf("there is no value %s", path)
		}
		values = inner
	}
	last := parts[len(parts)-1]
	if _, isThere := values[last]; !isThere {
		return fmt.Errorf("there is no value %s", path)
	}
	var value any
	if err := yaml.Unmarshal([]byte(text), &value); err != nil {
		return err
	}
	values[last] = value
	return nil
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
	for _, path := range paths {
		if strings.HasPrefix(filepath.Base(path), "_") {
			continue
		}
		fmt.Println("---")
		fail(all.ExecuteTemplate(os.Stdout, filepath.Base(path), data))
	}
}
