package main

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/cuelight/cuelight/internal/usererr"
	"github.com/cuelight/cuelight/store"
)

// asUsageError translates cobra's error about the command line.
func asUsageError(err error) error {
	if p, ok := errors.AsType[*usererr.Error](err); ok {
		return p
	}
	return &usererr.Error{
		Kind: usererr.Usage, Text: usererr.FirstLine(err.Error()), Hint: "cuelight --help lists the commands",
	}
}

// invalidFlag is the error of a flag whose value must be as wanted says.
func invalidFlag(name string, value any, wanted string) error {
	return usererr.Usagef("--%s %s: it must be %s", name, usererr.Printable(fmt.Sprint(value)), wanted)
}

// flagCheck is a check of a flag's value.
type flagCheck struct {
	isValid bool
	name    string
	value   any
	wanted  string
}

// checkFlags returns the joined errors of all invalid flags.
func checkFlags(checks ...flagCheck) error {
	var errs []error
	for _, c := range checks {
		if !c.isValid {
			errs = append(errs, invalidFlag(c.name, c.value, c.wanted))
		}
	}
	return errors.Join(errs...)
}

// wrongUsage returns the errors of wrong usage that err joins, or that it is; nil if it has others.
func wrongUsage(err error) (all []*usererr.Error) {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, one := range joined.Unwrap() {
			found := wrongUsage(one)
			if found == nil {
				return nil
			}
			all = append(all, found...)
		}
		return all
	}
	if e, ok := err.(*usererr.Error); ok && e.Kind == usererr.Usage {
		return []*usererr.Error{e}
	}
	return nil
}

// arguments accepts from least to most arguments; name is what one of them is called.
func arguments(least, most int, name string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch command := cmd.CommandPath(); {
		case len(args) < least && most == 1:
			return usererr.Usagef("%s needs a %s", command, name)
		case len(args) < least && least == most:
			e := usererr.Usagef("%s needs %s", command, name)
			e.Hint = "usage: " + cmd.UseLine()
			return e
		case len(args) < least:
			e := usererr.Usagef("%s needs at least one %s", command, name)
			e.Hint = "usage: " + cmd.UseLine()
			return e
		case most == 0 && len(args) > 0:
			e := usererr.Usagef("%s takes no arguments, but was given %s", command, usererr.Printable(args[0]))
			if cmd.Flags().Lookup("stage") != nil && slices.Contains(store.Video().Stages(), args[0]) {
				e.Hint = "for a stage: " + command + " --stage " + args[0]
			}
			return e
		case len(args) > most && most > 1:
			return usererr.Usagef("%s takes %s, but was also given %s", command, name, usererr.Printable(args[most]))
		case len(args) > most:
			return usererr.Usagef("%s takes one %s, but was also given %s", command, name, usererr.Printable(args[most]))
		}
		return nil
	}
}

// noArguments is for commands that take flags only.
var noArguments = arguments(0, 0, "")

func atMostOne(name string) cobra.PositionalArgs  { return arguments(0, 1, name) }
func exactlyOne(name string) cobra.PositionalArgs { return arguments(1, 1, name) }
func atLeastOne(name string) cobra.PositionalArgs { return arguments(1, math.MaxInt, name) }

// onlySubcommands makes a command print its help if it is called by itself.
func (c *cli) onlySubcommands(cmd *cobra.Command) {
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		p := usererr.Usagef("unknown command %q", cmd.CommandPath()+" "+usererr.Printable(args[0]))
		p.Hint = cmd.CommandPath() + " --help lists the commands"
		if near := nearest(args[0], commandNames(cmd)); near != "" {
			p.Hint = "did you mean: " + cmd.CommandPath() + " " + near
		}
		return p
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cmd.SetOut(c.err)
		_ = cmd.Help() // it writes to standard error, whose errors nobody could see
		return exitStatus(exitUsage)
	}
}

// helpCommand is cobra's help command, except that an unknown command is an error.
func helpCommand(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:               "help [COMMAND]",
		Short:             "Help about any command",
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(_ *cobra.Command, args []string) error {
			cmd, rest, err := root.Find(args)
			if err != nil {
				return err
			}
			if len(rest) > 0 {
				return cmd.ValidateArgs(rest)
			}
			return cmd.Help()
		},
	}
}

// flagError explains an error about a flag, with a suggestion.
func flagError(cmd *cobra.Command, err error) error {
	p := usererr.Usagef("%s", usererr.FirstLine(err.Error()))
	p.Hint = cmd.CommandPath() + " --help lists the flags"
	if value, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		p.Text = fmt.Sprintf("--%s %s: %s", value.GetFlag().Name, usererr.Printable(value.GetValue()),
			expectedValue(value.GetFlag(), value.Unwrap()))
		return p
	}
	if cmd.Name() == psqlName {
		p.Hint = "psql's own arguments go after --: cuelight db psql -- -c 'select …'"
		return p
	}
	if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok {
		if unknown.GetSpecifiedShortnames() != "" {
			p.Hint += "; a file whose name begins with a dash goes after --"
		} else if near := nearest(unknown.GetSpecifiedName(), flagNames(cmd)); near != "" {
			p.Hint = "did you mean: --" + near
		}
	}
	return p
}

// expectedValue says what a flag accepts. The parser's own error would name Go functions.
func expectedValue(f *pflag.Flag, err error) string {
	switch f.Value.Type() {
	case "int":
		return "it must be an integer"
	case "int16":
		return fmt.Sprintf("it must be an integer from %d to %d", math.MinInt16, math.MaxInt16)
	case "duration":
		return "it must be a duration such as 90s, 10m or 1h30m"
	case "bool":
		return "it must be true or false"
	case "stringToInt":
		return "it must be STAGE=NUMBER, several separated by commas"
	}
	return usererr.FirstLine(err.Error())
}

func commandNames(cmd *cobra.Command) (names []string) {
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() || sub.Name() == "help" {
			names = append(names, sub.Name())
		}
	}
	return names
}

func flagNames(cmd *cobra.Command) (names []string) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	return names
}

// nearest returns the candidate most similar to word; "" if none is similar. Longer words
// may differ more.
func nearest(word string, candidates []string) string {
	best, most := "", 1
	if len(word) >= 6 {
		most = len(word) / 3
	}
	for _, c := range candidates {
		if d := distance(word, c); d <= most {
			best, most = c, d-1
		} else if best == "" && len(word) >= 3 && strings.HasPrefix(c, word) {
			best = c
		}
	}
	return best
}

// distance is the Levenshtein distance.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
