package main

import "github.com/spf13/cobra"

const rootHelp = `Cuelight takes videos through a pipeline of stages, with PostgreSQL as its only
service:

  ingest -> transcode + metadata -> assemble -> publish

  to publish one video:  cuelight run FILE
  to run a daemon:       cuelight serve --watch DIR

A setting comes from the command line, else from the environment variable of the
same name (--data-dir: CUELIGHT_DATA_DIR), else from the configuration file (data-dir:
see cuelight config --help), else it has a default.

The database is the first of these that is set:
  1. --database-url
  2. CUELIGHT_DATABASE_URL
  3. database-url in the configuration file
  4. DATABASE_URL
  5. PGHOST, PGSERVICE or PGDATABASE, with the other PG* variables
  6. a private PostgreSQL server in the data directory, which cuelight starts,
     shares with other cuelight commands, and stops
The word "private" in place of an address selects the last one.

` + exitCodesHelp

const (
	groupWork    = "work"
	groupTasks   = "tasks"
	groupWorkers = "workers"
	groupMachine = "machine"
)

// execute runs the command that args name.
func (c *cli) execute(args []string) error {
	c.args = args
	root := c.rootCommand()
	root.SetArgs(args)
	parsed := false
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		if err := c.readSettings(cmd); err != nil {
			return err
		}
		parsed = true
		return nil
	}
	cmd, err := root.ExecuteContextC(c.sig.Ctx)
	if err != nil && !parsed {
		return asUsageError(err)
	}
	return atOrigin(cmd, err)
}

func (c *cli) rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "cuelight",
		Short:         "Take videos through a pipeline of stages on PostgreSQL",
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
		&cobra.Group{ID: groupWork, Title: "Work:"},
		&cobra.Group{ID: groupTasks, Title: "Tasks:"},
		&cobra.Group{ID: groupWorkers, Title: "Workers and access:"},
		&cobra.Group{ID: groupMachine, Title: "This machine:"},
	)
	help := helpCommand(root)
	root.SetHelpCommand(help)
	root.SetHelpCommandGroupID(groupMachine)
	root.SetCompletionCommandGroupID(groupMachine)
	c.commonFlags(root)
	add := func(group string, commands ...*cobra.Command) {
		for _, cmd := range commands {
			cmd.GroupID = group
			root.AddCommand(cmd)
		}
	}
	work, version, conformance := c.workCommand(), c.versionCommand(), c.conformanceCommand()
	hideFlags(root, work, "database-url", "local-dir")
	hideSettings(root, help)
	hideSettings(root, version)
	hideSettings(root, conformance)
	add(groupWork, c.runCommand(), c.serveCommand(), work)
	add(groupTasks, c.submitCommand(), c.listCommand(), c.showCommand(), c.watchCommand(),
		c.retryCommand(), c.cancelCommand(), c.deleteCommand(), c.undeleteCommand(), c.profilesCommand(),
		c.captionsCommand(), c.editCommand(), c.linkCommand())
	add(groupWorkers, c.workersCommand(), c.pauseCommand(), c.resumeCommand(), c.drainCommand(),
		c.keysCommand(), c.webhooksCommand())
	add(groupMachine, c.migrateCommand(), c.databaseCommand(), c.doctorCommand(), c.duCommand(), c.configCommand(root),
		c.relocateCommand(), conformance, version)
	man := c.manCommand()
	hideSettings(root, man)
	root.AddCommand(man)
	completeArguments(root)
	return root
}
