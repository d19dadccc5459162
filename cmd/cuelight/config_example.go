package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func (c *cli) configExampleCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "example",
		Short: "Print a configuration file with every setting",
		Long:  `Example prints a configuration file with every setting and its default, all commented out.`,
		Args:  noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprint(c.out, exampleConfig(cmd.Root()))
			return err
		},
	}
}

// exampleConfig returns a configuration file with all settings, commented out.
func exampleConfig(root *cobra.Command) string {
	var b strings.Builder
	b.WriteString("# Settings of cuelight, with their defaults. cuelight config --help describes this file,\n" +
		"# and cuelight config check finds errors in it.\n")
	all := flagsOfSection(root, "")
	slices.SortStableFunc(all, func(x, y *pflag.Flag) int { return strings.Compare(x.Name, y.Name) })
	types := make(map[string]map[string]bool) // by the name of a setting
	for _, f := range all {
		if types[f.Name] == nil {
			types[f.Name] = make(map[string]bool)
		}
		types[f.Name][f.Value.Type()] = true
	}
	all = slices.CompactFunc(all, func(x, y *pflag.Flag) bool { return x.Name == y.Name })
	for _, f := range all {
		if len(types[f.Name]) == 1 {
			writeExample(&b, "", f)
		}
	}
	b.WriteString("\n# Any of the above may also be in the section of a command. These must be:\n")
	for _, section := range sectionNames(root) {
		var own []*pflag.Flag
		for _, f := range flagsOfSection(root, section) {
			if len(types[f.Name]) > 1 {
				own = append(own, f)
			}
		}
		if len(own) > 0 {
			fmt.Fprintf(&b, "\n#%s:\n", section)
		}
		for _, f := range own {
			writeExample(&b, "  ", f)
		}
	}
	return b.String()
}

func writeExample(b *strings.Builder, indent string, f *pflag.Flag) {
	if indent == "" {
		b.WriteString("\n")
	}
	column := 0
	b.WriteString("#" + indent + "#")
	for word := range strings.FieldsSeq(f.Usage) {
		if column += 1 + len(word); column > 90 {
			b.WriteString("\n#" + indent + "#")
			column = 1 + len(word)
		}
		b.WriteString(" " + word)
	}
	fmt.Fprintf(b, "\n#%s%s:%s\n", indent, f.Name, exampleValue(f))
}

// exampleValue returns the default of a flag in YAML; empty for a text that has none.
func exampleValue(f *pflag.Flag) string {
	switch kind := f.Value.Type(); {
	case f.DefValue != "":
		return " " + f.DefValue
	case kind == "strings" || isList(f):
		return " []"
	case kind == "stringToInt":
		return " {}"
	}
	return ""
}
