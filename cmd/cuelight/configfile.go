package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/cuelight/cuelight/internal/console"
	"github.com/cuelight/cuelight/internal/dbconn"
	"github.com/cuelight/cuelight/internal/redact"
	"github.com/cuelight/cuelight/internal/usererr"
)

// defaultConfig is the configuration file that is read if it exists.
const defaultConfig = "/etc/cuelight/cuelight.yaml"

// configFile is a configuration file.
type configFile struct {
	path     string
	entries  []configEntry
	problems []configProblem
}

// configProblem is an error in a configuration file.
type configProblem struct {
	line int
	text string
}

// configEntry is a setting in a configuration file.
type configEntry struct {
	section string // the command that it is for; empty for all
	name    string
	line    int
	value   *yaml.Node
}

// readConfig returns the configuration file that a flag or a variable names, or the default one. It
// is nil if there is none.
func (c *cli) readConfig() (*configFile, error) {
	path, isDefault := c.configPath, false
	if path == "" {
		path = c.Env.Get(envPrefix + "CONFIG")
	}
	if path == "" {
		path, isDefault = defaultConfig, true
	}
	file, err := loadConfig(path, c.Env)
	if isDefault && errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return file, err
}

// loadConfig reads a configuration file, and checks all of it: also the settings of other commands.
func loadConfig(path string, env dbconn.Environment) (*configFile, error) {
	data, mode, err := readWithMode(path)
	if err != nil {
		e := &usererr.Error{
			Kind: usererr.Usage, Err: err,
			Text: fmt.Sprintf("the configuration file %s: %s", usererr.Printable(path), usererr.SystemMessage(err)),
		}
		if errors.Is(err, fs.ErrPermission) {
			e.Hint = "run the command as an account that may read the file, such as sudo -u cuelight cuelight …, or\n" +
				"without a file: CUELIGHT_CONFIG=/dev/null"
		}
		return nil, e
	}
	root := scratchCLI(env).rootCommand()
	file := &configFile{path: path}
	file.parse(data, root)
	for _, e := range file.entries {
		file.checkEntry(root, e, mode)
	}
	return file, file.err()
}

// err returns an error with all problems, in their order in the file; nil without any.
func (f *configFile) err() error {
	slices.SortStableFunc(f.problems, func(a, b configProblem) int { return a.line - b.line })
	var texts []string
	for _, p := range f.problems {
		texts = append(texts, p.text)
	}
	return usageError(texts)
}

func readWithMode(path string) (data []byte, mode fs.FileMode, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, 0, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, 0, err
	}
	data, err = io.ReadAll(f)
	return data, info.Mode(), err
}

// scratchCLI returns an invocation whose flags can be set without consequences.
func scratchCLI(env dbconn.Environment) *cli {
	c := &cli{out: console.NewStream(io.Discard, env), err: console.NewStream(io.Discard, env)}
	c.Env, c.Notices = env, c.err
	return c
}

// usageError returns an error with all problems; nil without any.
func usageError(problems []string) error {
	if len(problems) == 0 {
		return nil
	}
	return &usererr.Error{Kind: usererr.Usage, Text: problems[0], Hint: strings.Join(problems[1:], "\n")}
}

func (f *configFile) at(line int) string {
	return fmt.Sprintf("%s:%d", usererr.Printable(f.path), line)
}

func (f *configFile) report(line int, format string, args ...any) {
	f.problems = append(f.problems, configProblem{line, f.at(line) + ": " + fmt.Sprintf(format, args...)})
}

// yamlError matches the parser's message about a line.
var yamlError = regexp.MustCompile(`^yaml: line (\d+): (.*)`)

// parse collects the entries. The sections are the commands of root.
func (f *configFile) parse(data []byte, root *cobra.Command) {
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var document, second yaml.Node
	switch err := decoder.Decode(&document); {
	case errors.Is(err, io.EOF):
		return
	case err != nil:
		text := usererr.FirstLine(err.Error())
		if m := yamlError.FindStringSubmatch(text); m != nil {
			text = "near line " + m[1] + ": " + m[2] // the parser's line is not exact
		}
		f.problems = []configProblem{{0, usererr.Printable(f.path) + ": it is not YAML: " + strings.TrimPrefix(text, "yaml: ")}}
		return
	}
	if !errors.Is(decoder.Decode(&second), io.EOF) {
		f.report(max(second.Line, 1), "a second document begins; there must be one")
		return
	}
	f.collect("", document.Content[0], sectionNames(root))
}

// collect collects the entries of the file or, with a name, of a section.
func (f *configFile) collect(section string, node *yaml.Node, sections []string) {
	if node.Kind != yaml.MappingNode {
		if node.Tag != "!!null" || section != "" {
			f.report(node.Line, "it must be lines with NAME: VALUE")
		}
		return
	}
	lines := make(map[string]int)
	for pair := range slices.Chunk(node.Content, 2) {
		key, value := pair[0], pair[1]
		if value.Kind == yaml.AliasNode {
			value = value.Alias
		}
		if key.Kind != yaml.ScalarNode || key.Value == "" {
			f.report(key.Line, "it must be lines with NAME: VALUE")
			continue
		}
		if first, isRepeated := lines[key.Value]; isRepeated {
			f.report(key.Line, "%s is set in line %d, too", usererr.Printable(key.Value), first)
			continue
		}
		lines[key.Value] = key.Line
		if section == "" && slices.Contains(sections, key.Value) {
			f.collect(key.Value, value, nil)
			continue
		}
		f.entries = append(f.entries, configEntry{section, key.Value, key.Line, value})
	}
}

// sectionNames returns the commands that have settings of their own.
func sectionNames(root *cobra.Command) (names []string) {
	for _, cmd := range root.Commands() {
		if len(settingFlags(cmd)) > len(settingFlags(root)) {
			names = append(names, cmd.Name())
		}
	}
	return names
}

// sectionOf returns the name of the section for a command.
func sectionOf(cmd *cobra.Command) string {
	for cmd.HasParent() && cmd.Parent().HasParent() {
		cmd = cmd.Parent()
	}
	return cmd.Name()
}

// settingFlags returns the flags of a command that a configuration file sets.
func settingFlags(cmd *cobra.Command) (flags []*pflag.Flag) {
	cmd.InheritedFlags() // adds those of its parents to its flags
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if f.Annotations[fromEnvironment] != nil && !f.Hidden && f.Name != configFlag {
			flags = append(flags, f)
		}
	})
	return flags
}

// flagsOfSection returns the flags that a section sets, or without a name those of all commands.
func flagsOfSection(root *cobra.Command, section string) (flags []*pflag.Flag) {
	for _, cmd := range commandTree(root) {
		if section == "" || sectionOf(cmd) == section {
			flags = append(flags, settingFlags(cmd)...)
		}
	}
	return flags
}

// commandTree returns a command and all below it.
func commandTree(cmd *cobra.Command) []*cobra.Command {
	all := []*cobra.Command{cmd}
	for _, sub := range cmd.Commands() {
		all = append(all, commandTree(sub)...)
	}
	return all
}

// checkEntry reports an unknown setting, a wrong value, and a password that others can read.
func (f *configFile) checkEntry(root *cobra.Command, e configEntry, mode fs.FileMode) {
	var names []string
	var flags []*pflag.Flag
	for _, flag := range flagsOfSection(root, e.section) {
		names = append(names, flag.Name)
		if flag.Name == e.name {
			flags = append(flags, flag)
		}
	}
	if len(flags) == 0 {
		f.reportUnknown(root, e, names)
		return
	}
	for _, flag := range flags {
		if flag.Value.Type() != flags[0].Value.Type() {
			f.report(e.line, "%s differs between commands: set it in their sections; allowed: %s",
				e.name, strings.Join(sectionsWith(root, e.name), ", "))
			return
		}
		if problem, line := setFromNode(flag, e.value); problem != "" {
			f.report(line, "%s", e.name+problem)
			return
		}
	}
	if mode.IsRegular() && mode&0o004 != 0 && redact.Passwords(e.value.Value) != e.value.Value {
		f.report(e.line, "%s has a password, and every user can read the file; run chmod o= %s", e.name, console.ShellQuote(f.path))
	}
}

func (f *configFile) reportUnknown(root *cobra.Command, e configEntry, names []string) {
	where := ""
	if e.section == "" {
		names = append(names, sectionNames(root)...)
	} else {
		where = " in the section " + e.section
	}
	name := usererr.Printable(e.name)
	switch near := nearest(e.name, names); {
	case near != "":
		f.report(e.line, "unknown setting %s%s; did you mean %s?", name, where, near)
	case e.section != "" && sectionsWith(root, e.name) != nil:
		f.report(e.line, "unknown setting %s%s; cuelight %s has no such flag", name, where, e.section)
	default:
		f.report(e.line, "unknown setting %s%s; cuelight config example prints all", name, where)
	}
}

// sectionsWith returns the sections that have a setting.
func sectionsWith(root *cobra.Command, name string) (sections []string) {
	for _, section := range sectionNames(root) {
		if slices.ContainsFunc(flagsOfSection(root, section), func(f *pflag.Flag) bool { return f.Name == name }) {
			sections = append(sections, section)
		}
	}
	return sections
}

// entry returns the entry that sets a flag of a command; nil if there is none. A section goes first.
func (f *configFile) entry(cmd *cobra.Command, name string) *configEntry {
	if f == nil {
		return nil
	}
	for _, section := range []string{sectionOf(cmd), ""} {
		for i, e := range f.entries {
			if e.section == section && e.name == name {
				return &f.entries[i]
			}
		}
	}
	return nil
}
