package main

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/cuelight/cuelight/internal/dbconn"
)

// cli is one invocation of the program.
type cli struct {
	sig *signals
	in  io.Reader
	out *stream
	err *stream

	dbconn.Options
	json  bool
	where string // the flags that say where things are, as they were given
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
	groupWorkers = "workers"
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
		&cobra.Group{ID: groupWorkers, Title: "Workers, and who may look on:"},
		&cobra.Group{ID: groupMachine, Title: "The machine:"},
	)
	root.SetHelpCommand(c.helpCommand(root))
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
	add(groupWorkers, c.workersCommand(), c.pauseCommand(), c.resumeCommand(), c.drainCommand(), c.keysCommand(), c.webhooksCommand())
	add(groupMachine, c.migrateCommand(), c.databaseCommand(), c.doctorCommand(), c.versionCommand())
	return root
}

func (c *cli) versionCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  noArguments,
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
