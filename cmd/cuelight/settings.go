package main

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/cuelight/cuelight/internal/dbconn"
	"github.com/cuelight/cuelight/internal/usererr"
)

// envPrefix begins the names of the variables that set flags.
const envPrefix = "CUELIGHT_"

// fromEnvironment is the annotation of flags that a variable sets.
const fromEnvironment = "environment"

// bindEnvironment lets variables set the flags that have been added so far, and adds their names
// to the help.
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
		cmd.Flags().AddFlag(&hidden)
	}
}

func (c *cli) jsonFlag(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&c.json, "json", false, "write JSON, one object per line")
}

// readEnvironment sets the flags that are not on the command line from the environment,
// and warns of unknown variables.
func (c *cli) readEnvironment(cmd *cobra.Command) error {
	var err error
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		names := f.Annotations[fromEnvironment]
		if err == nil && f.Changed && f.Value.String() == "" && strings.HasSuffix(f.Name, "-dir") {
			err = usererr.Usagef("--%s is empty: set a directory, or omit the flag", f.Name)
		}
		if err != nil || len(names) == 0 || f.Changed {
			return
		}
		value := c.Env.Get(names[0])
		if value == "" {
			return
		}
		e := error(nil)
		if list, ok := f.Value.(pflag.SliceValue); ok && f.Value.Type() == "stringArray" {
			e = list.Replace(filepath.SplitList(value))
		} else {
			e = f.Value.Set(value)
		}
		if e != nil {
			err = usererr.Usagef("%s=%q: %s", names[0], value, expectedValue(f, e))
		}
	})
	if err == nil {
		c.warnUnknown(cmd.Root())
	}
	return err
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
