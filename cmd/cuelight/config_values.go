package main

import (
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/cuelight/cuelight/internal/redact"
	"github.com/cuelight/cuelight/internal/usererr"
)

// setFromNode sets a flag to a value of a configuration file. It returns what is wrong with it, and in which line.
func setFromNode(f *pflag.Flag, node *yaml.Node) (problem string, line int) {
	switch kind := f.Value.Type(); {
	case node.Kind == yaml.ScalarNode && isEmpty(node):
		return " has no value: write one, or remove the line for the default", node.Line
	case node.Kind == yaml.ScalarNode:
		return setScalar(f, node.Value), node.Line
	case node.Kind == yaml.SequenceNode && (kind == "strings" || isList(f)):
		return setList(f, node)
	case node.Kind == yaml.MappingNode && kind == "stringToInt":
		var pairs []string
		for pair := range slices.Chunk(node.Content, 2) {
			pairs = append(pairs, pair[0].Value+"="+pair[1].Value)
		}
		if len(pairs) == 0 {
			return "", node.Line
		}
		return setScalar(f, strings.Join(pairs, ",")), node.Line
	}
	return ": it must be a single value", node.Line
}

func isEmpty(node *yaml.Node) bool { return node.Value == "" || node.Tag == "!!null" }

func isList(f *pflag.Flag) bool {
	_, ok := f.Value.(pflag.SliceValue)
	return ok
}

func setScalar(f *pflag.Flag, value string) (problem string) {
	err := error(nil)
	if list, ok := f.Value.(pflag.SliceValue); ok && f.Value.Type() == "stringArray" {
		err = list.Replace([]string{value})
	} else {
		err = f.Value.Set(value)
	}
	if err != nil {
		return " " + usererr.Printable(redact.Passwords(value)) + ": " + expectedValue(f, err)
	}
	return ""
}

func setList(f *pflag.Flag, node *yaml.Node) (problem string, line int) {
	list, isReplaced := f.Value.(pflag.SliceValue)
	var values []string
	for _, item := range node.Content {
		if item.Kind != yaml.ScalarNode || isEmpty(item) {
			return ": it must be a list of single values", item.Line
		}
		values = append(values, item.Value)
		if !isReplaced {
			problem = setScalar(f, item.Value)
		}
		if problem != "" {
			return problem, item.Line
		}
	}
	if isReplaced && list.Replace(values) != nil {
		return ": it must be a list of single values", node.Line
	}
	return "", node.Line
}
