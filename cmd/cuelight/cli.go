package main

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// cli is one invocation of the program.
type cli struct {
	sig *signals
	env environment
	in  io.Reader
	out *stream
	err *stream

	dataDir     string
	publishDir  string
	databaseURL string
	json        bool
}

const rootHelp = `Cuelight takes videos through a pipeline of stages, on PostgreSQL alone:

  ingest -> transcode + metadata -> assemble -> publish

To publish one video:            cuelight run FILE
To work on videos as they come:  cuelight serve --watch DIR

Settings are taken from the command line, else from the environment variable
of the same name (--data-dir: CUELIGHT_DATA_DIR), else they have a default.

The database is the one that comes first of
  1. --database-url
  2. CUELIGHT_DATABASE_URL
  3. DATABASE_URL
  4. PGHOST, PGSERVICE, PGDATABASE and the other PG* variables, if one of these
     three is set
  5. a private PostgreSQL server below the data directory, which cuelight starts,
     shares with other cuelight commands, and stops
The word "private" in place of an address chooses the last one at once.

` + exitCodes

const (
	groupWork    = "work"
	groupTasks   = "tasks"
	groupMachine = "machine"
)

// execute runs the command that args name.
func (c *cli) execute(args []string) error {
	root := c.root()
	root.SetArgs(args)
	began := false
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		if err := c.readEnvironment(cmd); err != nil {
			return err
		}
		began = true
		return nil
	}
	err := root.ExecuteContext(c.sig.ctx)
	if err != nil && !began {
		return asUsage(err)
	}
	return err
}

// asUsage makes a problem of what cobra found wrong with the command line.
func asUsage(err error) error {
	if p, ok := errors.AsType[*problem](err); ok {
		return p
	}
	return &problem{code: exitUsage, text: firstLine(err.Error()), hint: "cuelight --help lists the commands"}
}

func (c *cli) root() *cobra.Command {
	root := &cobra.Command{
		Use:           "cuelight",
		Short:         "Take videos through a pipeline of stages, on PostgreSQL alone",
		Long:          rootHelp,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	c.onlySubcommands(root)
	root.SetIn(c.in)
	root.SetOut(c.out)
	root.SetErr(c.err)
	root.SetFlagErrorFunc(flagError)
	root.AddGroup(
		&cobra.Group{ID: groupWork, Title: "Working:"},
		&cobra.Group{ID: groupTasks, Title: "Tasks:"},
		&cobra.Group{ID: groupMachine, Title: "The machine:"},
	)
	root.SetHelpCommandGroupID(groupMachine)
	root.SetCompletionCommandGroupID(groupMachine)
	c.commonFlags(root)
	add := func(group string, commands ...*cobra.Command) {
		for _, cmd := range commands {
			cmd.GroupID = group
			root.AddCommand(cmd)
		}
	}
	add(groupWork, c.runCommand(), c.serveCommand())
	add(groupTasks, c.submitCommand(), c.listCommand(), c.showCommand(), c.watchCommand(), c.retryCommand(), c.cancelCommand())
	add(groupMachine, c.workersCommand(), c.migrateCommand(), c.databaseCommand(), c.doctorCommand(), c.versionCommand())
	return root
}

// onlySubcommands is for a command that does nothing by itself.
func (c *cli) onlySubcommands(cmd *cobra.Command) {
	cmd.SuggestionsMinimumDistance = 2
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		p := usagef("unknown command %q", cmd.CommandPath()+" "+printable(args[0]))
		p.hint = cmd.CommandPath() + " --help lists the commands"
		if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
			p.hint = "did you mean: " + cmd.CommandPath() + " " + strings.Join(near, ", "+cmd.CommandPath()+" ")
		}
		return p
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cmd.SetOut(c.err)
		_ = cmd.Help() // to standard error, where nothing is ever checked
		return quiet(exitUsage)
	}
}

// flagError adds what was probably meant.
func flagError(cmd *cobra.Command, err error) error {
	p := usagef("%s", firstLine(err.Error()))
	p.hint = cmd.CommandPath() + " --help lists the flags"
	if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok {
		if unknown.GetSpecifiedShortnames() != "" {
			p.hint += "; a file whose name begins with a dash goes after --"
		} else if near := nearest(unknown.GetSpecifiedName(), flagNames(cmd)); near != "" {
			p.hint = "did you mean: --" + near
		}
	}
	return p
}

func flagNames(cmd *cobra.Command) (names []string) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	return names
}

// nearest is the candidate that differs least from word, if it differs little.
func nearest(word string, candidates []string) string {
	best, most := "", 1+len(word)/3
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

func (c *cli) versionCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if c.json {
				return c.writeJSON(map[string]string{
					"version": programVersion(), "go": runtime.Version(), "platform": runtime.GOOS + "/" + runtime.GOARCH,
				})
			}
			_, err := fmt.Fprintf(c.out, "cuelight %s (%s, %s/%s)\n", programVersion(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return err
		},
	}
	c.jsonFlag(cmd)
	return cmd
}

// programVersion is what the linker was told, else what the module proxy
// knows, as after `go install …@version`.
func programVersion() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "devel"
}
