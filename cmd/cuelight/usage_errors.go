package main

import (
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/cuelight/cuelight/internal/usererr"
)

// asUsage makes a problem of what cobra found wrong with the command line.
func asUsage(err error) error {
	if p, ok := errors.AsType[*usererr.Error](err); ok {
		return p
	}
	return &usererr.Error{Kind: usererr.Usage, Text: usererr.FirstLine(err.Error()), Hint: "cuelight --help lists the commands"}
}

// noArguments is for a command that takes flags only.
func noArguments(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return usererr.Usagef("%s takes no arguments, but was given %s", cmd.CommandPath(), usererr.Printable(args[0]))
}

// exactlyOne is for a command that takes one argument, by its name in the usage.
func exactlyOne(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch len(args) {
		case 0:
			return usererr.Usagef("%s: which %s?", cmd.CommandPath(), what)
		case 1:
			return nil
		}
		return usererr.Usagef("%s takes one %s, but was also given %s", cmd.CommandPath(), what, usererr.Printable(args[1]))
	}
}

// onlySubcommands is for a command that does nothing by itself.
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
		_ = cmd.Help() // to standard error, where nothing is ever checked
		return quiet(exitUsage)
	}
}

// helpCommand is cobra's, but an unknown command is an error.
func (c *cli) helpCommand(root *cobra.Command) *cobra.Command {
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

// flagError adds what was probably meant.
func flagError(cmd *cobra.Command, err error) error {
	p := usererr.Usagef("%s", usererr.FirstLine(err.Error()))
	p.Hint = cmd.CommandPath() + " --help lists the flags"
	if value, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		p.Text = fmt.Sprintf("--%s %s: %s", value.GetFlag().Name, usererr.Printable(value.GetValue()), wanted(value.GetFlag(), value.Unwrap()))
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

// wanted says what a flag's value has to be like, where the error of the parser
// would only say how the parser is called.
func wanted(f *pflag.Flag, err error) string {
	switch f.Value.Type() {
	case "int":
		return "it is a whole number"
	case "int16":
		return fmt.Sprintf("it is a whole number, %d to %d", math.MinInt16, math.MaxInt16)
	case "duration":
		return "it is a time span such as 90s, 10m or 1h30m"
	case "bool":
		return "it is true or false"
	case "stringToInt":
		return "it is STAGE=NUMBER, several separated by commas"
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

// nearest is the candidate that differs least from word, if it differs little:
// of a short word, two changes leave nothing.
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

// distance is Levenshtein's.
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
