package main

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/cuelight/cuelight/internal/dbconn"
	"github.com/cuelight/cuelight/internal/redact"
	"github.com/cuelight/cuelight/internal/usererr"
)

// envPrefix begins the names of the variables that set flags.
const envPrefix = "CUELIGHT_"

// The annotations of flags that are settings: the variable that sets one, and where its value comes from.
const (
	fromEnvironment = "environment"
	settingOrigin   = "origin"
)

// configFlag is the flag that names the configuration file.
const configFlag = "config"

// bindEnvironment makes the flags that have been added so far settings: variables and the configuration
// file set them, and the help has the names of the variables.
func bindEnvironment(flags *pflag.FlagSet) {
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Annotations[fromEnvironment] == nil {
			variable := envPrefix + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
			f.Annotations = map[string][]string{fromEnvironment: {variable}}
			f.Usage += " [" + variable + "]"
		}
	})
}

// commonFlags adds the flags of every command.
func (c *cli) commonFlags(root *cobra.Command) {
	flags := root.PersistentFlags()
	flags.StringVar(&c.configPath, configFlag, "", "configuration file (default "+defaultConfig+" if it exists)")
	flags.StringVar(&c.DataDir, "data-dir", "",
		"directory for sources, temporary files and the private database, or s3://BUCKET/PREFIX (default "+
			dbconn.DefaultDataDir(c.Env)+")")
	flags.StringVar(&c.LocalDir, "local-dir", "",
		"directory for temporary files, secrets and the private database if --data-dir is a bucket (default "+
			dbconn.DefaultDataDir(c.Env)+")")
	flags.StringVar(&c.DatabaseURL, "database-url", "", "address of the PostgreSQL database, or \"private\"")
	bindEnvironment(flags)
}

// hideFlags hides flags of every command in the help of one that does not use them. It still accepts them.
func hideFlags(root, cmd *cobra.Command, names ...string) {
	for _, name := range names {
		hidden := *root.PersistentFlags().Lookup(name)
		hidden.Hidden = true
		cmd.PersistentFlags().AddFlag(&hidden)
	}
}

// hideSettings hides all flags of every command in the help of one that uses none. It reads no configuration
// file, so that a wrong one does not matter.
func hideSettings(root, cmd *cobra.Command) {
	hideFlags(root, cmd, configFlag, "database-url", "local-dir", "data-dir")
}

// usesSettings reports whether a command reads the configuration file.
func usesSettings(cmd *cobra.Command) bool {
	f := cmd.Flags().Lookup(configFlag)
	return f != nil && !f.Hidden && cmd.Name() != cobra.ShellCompRequestCmd
}

func (c *cli) jsonFlag(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&c.json, "json", false, "write JSON, one object per line")
}

// readSettings sets the flags that are not on the command line from the environment, else from the
// configuration file, and warns of unknown variables.
func (c *cli) readSettings(cmd *cobra.Command) (err error) {
	var file *configFile
	if usesSettings(cmd) {
		if file, err = c.readConfig(); err != nil {
			return err
		}
	}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if err == nil {
			err = c.readSetting(file.entry(cmd, f.Name), file, f)
		}
	})
	if err == nil {
		c.DatabaseOrigin = originOf(cmd.Flags().Lookup("database-url"))
		c.warnUnknown(cmd.Root())
	}
	return err
}

// readSetting sets a flag that is not on the command line; entry is that of the file, or nil.
func (c *cli) readSetting(entry *configEntry, file *configFile, f *pflag.Flag) error {
	names := f.Annotations[fromEnvironment]
	if f.Changed && f.Value.String() == "" && strings.HasSuffix(f.Name, "-dir") {
		return usererr.Usagef("--%s is empty: set a directory, or omit the flag", f.Name)
	}
	if len(names) == 0 {
		return nil
	}
	origin, value := "default", c.Env.Get(names[0])
	switch {
	case f.Changed:
		origin = "--" + f.Name
	case value != "":
		origin = names[0]
		if err := setFromVariable(f, value); err != nil {
			return usererr.Usagef("%s=%q: %s", names[0], redact.Passwords(value), expectedValue(f, err))
		}
	case entry != nil && !f.Hidden:
		origin = file.at(entry.line)
		setFromNode(f, entry.value) // it has been checked
	}
	f.Annotations[settingOrigin] = []string{origin}
	return nil
}

func setFromVariable(f *pflag.Flag, value string) error {
	if list, ok := f.Value.(pflag.SliceValue); ok && f.Value.Type() == "stringArray" {
		return list.Replace(filepath.SplitList(value))
	}
	return f.Value.Set(value)
}

// originOf says where the value of a setting comes from: default, --NAME, a variable, or FILE:LINE.
func originOf(f *pflag.Flag) string {
	if f == nil || f.Annotations[settingOrigin] == nil {
		return "default"
	}
	return f.Annotations[settingOrigin][0]
}

// flagPattern matches a flag in a message.
var flagPattern = regexp.MustCompile(`--[a-z][a-z-]+`)

// atOrigin returns one error for all that err joins, if they are about wrong usage. Errors about values from a
// configuration file get their lines.
func atOrigin(cmd *cobra.Command, err error) error {
	all := wrongUsage(err)
	if all == nil {
		return err
	}
	var lines []string
	for _, e := range all {
		lines = append(lines, textAtOrigin(cmd, e.Text))
		if e.Hint != "" {
			lines = append(lines, e.Hint)
		}
	}
	located := *all[0]
	located.Text, located.Hint = lines[0], strings.Join(lines[1:], "\n")
	return &located
}

func textAtOrigin(cmd *cobra.Command, text string) string {
	setting := func(flag string) *pflag.Flag { return cmd.Flags().Lookup(strings.TrimPrefix(flag, "--")) }
	for _, flag := range flagPattern.FindAllString(text, -1) {
		if origin := originOf(setting(flag)); strings.Contains(origin, ":") { // FILE:LINE
			return origin + ": " + flagPattern.ReplaceAllStringFunc(text, func(flag string) string {
				if setting(flag) == nil {
					return flag
				}
				return strings.TrimPrefix(flag, "--")
			})
		}
	}
	return text
}

// warnUnknown warns of variables that may be misspelt. They are not errors, because other
// programs may use the prefix.
func (c *cli) warnUnknown(root *cobra.Command) {
	known := []string{"CUELIGHT_PG_BIN", "CUELIGHT_INSTALL"} // read elsewhere
	collect := func(f *pflag.Flag) { known = append(known, f.Annotations[fromEnvironment]...) }
	root.PersistentFlags().VisitAll(collect)
	for _, cmd := range root.Commands() {
		cmd.Flags().VisitAll(collect)
	}
	short := make([]string, len(known))
	for i, name := range known {
		short[i] = strings.TrimPrefix(name, envPrefix)
	}
	for _, entry := range c.Env {
		name, _, _ := strings.Cut(entry, "=")
		if !strings.HasPrefix(name, envPrefix) || strings.HasPrefix(name, "CUELIGHT_TEST_") || slices.Contains(known, name) {
			continue
		}
		hint := ""
		// Without the prefix, which makes all names similar.
		if near := nearest(strings.TrimPrefix(name, envPrefix), short); near != "" {
			hint = "; did you mean " + envPrefix + near + "?"
		}
		fmt.Fprintf(c.err, "cuelight: warning: the variable %s is not a setting%s\n", name, hint)
	}
}
