package main

import (
	"slices"

	"github.com/spf13/cobra"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/cuelight/cuelight/internal/daemon"
	"github.com/cuelight/cuelight/internal/usererr"
)

// logOptions are the flags of the log of a daemon.
type logOptions struct{ level string }

func (o *logOptions) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.level, logLevelFlag, "info", "lowest level of what is logged: info, warn or error")
	_ = cmd.RegisterFlagCompletionFunc(logLevelFlag,
		cobra.FixedCompletions([]string{"info", "warn", "error"}, cobra.ShellCompDirectiveNoFileComp))
}

const logLevelFlag = "log-level"

func (o *logOptions) check() flagCheck {
	return flagCheck{slices.Contains([]string{"info", "warn", "error"}, o.level), logLevelFlag, o.level, "info, warn or error"}
}

// newLog returns the log of a command that runs until it is stopped, and what SIGHUP does to it.
func (c *cli) newLog(cmd *cobra.Command, o logOptions) (*zap.Logger, daemon.Reload) {
	level := zap.NewAtomicLevelAt(parseLevel(o.level))
	log := daemon.NewLog(c.err, level)
	if c.err.IsTerminal {
		return log, daemon.Reload{} // SIGHUP is the end of the terminal
	}
	r := &reloader{c: c, running: settingsOf(cmd), level: level, log: log}
	return log, daemon.Reload{Signal: c.sig.Hangups(), Do: r.reload}
}

func parseLevel(name string) zapcore.Level {
	level, _ := zapcore.ParseLevel(name) // it has been checked
	return level
}

// reloader reads the settings again while a daemon runs.
type reloader struct {
	c       *cli
	running []setting // with passwords; only reload uses it
	level   zap.AtomicLevel
	log     *zap.Logger
}

// reload applies the settings that can change while the daemon runs, and names the others that have changed. If
// anything is wrong, all stay as they are.
func (r *reloader) reload() {
	next := scratchCLI(r.c.Env)
	cmd, err := next.prepare(r.c.args)
	if err != nil {
		fields := []zap.Field{zap.Error(err)}
		if e, ok := err.(*usererr.Error); ok && e.Hint != "" {
			fields = append(fields, zap.String("hint", e.Hint))
		}
		r.log.Error("settings not reloaded: the running ones stay", fields...)
		return
	}
	// The changes are logged at the more verbose of both levels.
	level := parseLevel(cmd.Flags().Lookup(logLevelFlag).Value.String())
	r.level.SetLevel(min(level, r.level.Level()))
	defer r.level.SetLevel(level)
	restart := 0
	for i, s := range settingsOf(cmd) {
		if s.Value == r.running[i].Value {
			continue
		}
		fields := []zap.Field{zap.String("setting", s.Name), zap.String("value", s.redacted().Value), zap.String("origin", s.Origin)}
		if s.Name != logLevelFlag {
			restart++
			r.log.Warn("setting changed: a restart is required", fields...)
			continue
		}
		r.log.Info("setting changed", fields...)
		r.running[i] = s
	}
	r.log.Info("settings reloaded", zap.Int("restart_required", restart))
}
