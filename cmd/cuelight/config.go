package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/cuelight/cuelight/internal/redact"
	"github.com/cuelight/cuelight/internal/usererr"
)

const configHelp = `The configuration file is /etc/cuelight/cuelight.yaml if it exists, or the one of
--config or CUELIGHT_CONFIG, which must exist. It sets flags of all commands by their
names, and flags of one command in a section with the name of the command:

  data-dir: /srv/cuelight
  watch: [/srv/inbox]
  serve:
    listen: 127.0.0.1:8080
    slots: {transcode: 2}

A flag goes before its environment variable, that before the file, and in the file a
section before the rest.

On SIGHUP, cuelight serve and cuelight work read the file again. A new log-level
applies at once; of other settings that have changed, the log says that they require a
restart. A file with errors changes nothing.`

func (c *cli) configCommand(root *cobra.Command) *cobra.Command {
	cmd := &cobra.Command{Use: "config", Short: "Check and show the settings", Long: configHelp}
	c.onlySubcommands(cmd)
	check, example := c.configCheckCommand(), c.configExampleCommand()
	hideSettings(root, check)
	hideSettings(root, example)
	cmd.AddCommand(check, c.configShowCommand(), example)
	return cmd
}

func (c *cli) configCheckCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check [FILE]",
		Short: "Check a configuration file",
		Long: `Check reads a configuration file as the next start would, and prints all errors with
their lines. It also checks the values together with the environment, and starts and
changes nothing. The exit code is 2 if something is wrong. It reads the files and
directories that the settings name, so run it as the account of the service.`,
		Args: atMostOne("FILE"),
	}
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		if len(args) > 0 {
			c.configPath = args[0]
		}
		return c.checkConfig()
	}
	return cmd
}

func (c *cli) checkConfig() error {
	file, err := c.readConfig()
	if err != nil {
		return err
	}
	if file == nil {
		return usererr.Usagef("there is no configuration file %s", defaultConfig)
	}
	var problems []string
	for _, name := range []string{"serve", "run", "work"} {
		scratch := scratchCLI(c.Env)
		scratch.configPath = file.path
		_, err := scratch.prepare([]string{name})
		if err == nil {
			continue
		}
		text := err.Error()
		if e, ok := err.(*usererr.Error); ok {
			text += "\n" + e.Hint
		}
		for line := range strings.SplitSeq(strings.TrimSpace(text), "\n") {
			if !slices.Contains(problems, line) {
				problems = append(problems, line)
			}
		}
	}
	if err := usageError(problems); err != nil {
		return err
	}
	_, err = fmt.Fprintf(c.out, "%s: no errors\n", usererr.Printable(file.path))
	return err
}

// prepare reads the settings of a command line, and checks them as far as that is possible without a start.
func (c *cli) prepare(args []string) (*cobra.Command, error) {
	path := c.configPath // the new flag resets it
	cmd, flags, err := c.rootCommand().Find(args)
	if err != nil {
		return nil, err
	}
	if err := cmd.ParseFlags(flags); err != nil {
		return cmd, err
	}
	if c.configPath == "" {
		c.configPath = path
	}
	if err := c.readSettings(cmd); err != nil {
		return cmd, err
	}
	return cmd, atOrigin(cmd, cmd.PreRunE(cmd, nil))
}

// setting is a setting of a command.
type setting struct {
	Name   string `json:"setting"`
	Value  string `json:"value"`
	Origin string `json:"origin"`
}

func (s setting) redacted() setting {
	s.Value = redact.Passwords(s.Value)
	return s
}

// settingsOf returns the settings of a command that were read, with passwords.
func settingsOf(cmd *cobra.Command) (all []setting) {
	for _, f := range settingFlags(cmd) {
		all = append(all, setting{f.Name, valueOf(f), originOf(f)})
	}
	return all
}

// valueOf returns the value of a flag as a configuration file could have it.
func valueOf(f *pflag.Flag) string {
	text := f.Value.String()
	switch {
	case originOf(f) == "default":
		return strings.Trim(f.DefValue, "[]") // it is empty if the help describes the default
	case isList(f):
		return strings.Join(f.Value.(pflag.SliceValue).GetSlice(), ",")
	case f.Value.Type() == "stringToInt":
		pairs := strings.Split(strings.Trim(text, "[]"), ",")
		slices.Sort(pairs) // their order is random
		return strings.Join(pairs, ",")
	}
	return text
}

func (c *cli) configShowCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show [COMMAND]",
		Short: "Print every setting of a command, and where it comes from",
		Long: `Show prints the settings that a command would have, such as cuelight work; without an
argument those of cuelight serve. ORIGIN is a variable, a line of the configuration
file, a flag, or default. Passwords are not shown.`,
		Args: atMostOne("COMMAND"),
	}
	c.jsonFlag(cmd)
	cmd.ValidArgsFunction = func(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return sectionNames(cmd.Root()), cobra.ShellCompDirectiveNoFileComp
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		target, rest, err := cmd.Root().Find(append(slices.Clone(args), "serve")[:1])
		if err == nil && len(rest) > 0 {
			err = target.ValidateArgs(rest)
		}
		if err != nil {
			return err
		}
		target.InheritedFlags() // adds those of its parents to its flags
		if err := c.readSettings(target); err != nil {
			return err
		}
		all := settingsOf(target)
		for i, s := range all {
			all[i] = s.redacted()
		}
		return printList(c, all, "settings", "SETTING VALUE ORIGIN", func(s setting) []string {
			return []string{s.Name, cmp.Or(usererr.Printable(s.Value), "-"), s.Origin}
		})
	}
	return cmd
}
