package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cuelight/cuelight/internal/redact"
	"github.com/cuelight/cuelight/internal/usererr"
	"github.com/cuelight/cuelight/store"
)

// statuses are those that both a task as a whole and a stage can have.
var statuses = []string{
	string(store.StatusPending), string(store.StatusInProgress), string(store.StatusCompleted),
	string(store.StatusFailed), string(store.StatusDead), string(store.StatusCancelled),
}

// taskStatuses are those of a task as a whole, and stageStatuses those of a stage.
var (
	taskStatuses  = append([]string{string(store.StatusScheduled)}, statuses...)
	stageStatuses = append([]string{string(store.StatusDivided)}, statuses...)
)

// filterFlags are the flags that select tasks.
type filterFlags struct {
	status, stage, user, request, source, error string
}

// given returns the flags that were given, for the audit log.
func (f *filterFlags) given() map[string]string {
	given := map[string]string{}
	for name, value := range map[string]string{
		"status": f.status, "stage": f.stage, "user": f.user, "request_id": f.request,
		"source": redact.Filter(f.source), "error": f.error,
	} {
		if value != "" {
			given[name] = value
		}
	}
	return given
}

func addFilterFlags(cmd *cobra.Command) *filterFlags {
	f := &filterFlags{}
	flags := cmd.Flags()
	flags.StringVar(&f.status, "status", "", "only tasks with this status: "+strings.Join(taskStatuses, ", "))
	flags.StringVar(&f.stage, "stage", "", "only tasks whose stage has a status: STAGE=STATUS")
	flags.StringVar(&f.user, "user", "", "only tasks of this user")
	flags.StringVar(&f.request, "request-id", "", "only the task with this request id")
	flags.StringVar(&f.source, "source", "", "only tasks whose source contains this")
	flags.StringVar(&f.error, "error", "", "only tasks with an error that contains this")
	var pairs []string
	for _, stage := range store.Video().Stages() {
		for _, status := range stageStatuses {
			pairs = append(pairs, stage+"="+status)
		}
	}
	completeWith(cmd, "status", taskStatuses)
	completeWith(cmd, "stage", pairs)
	return f
}

func (f *filterFlags) filter() (store.Filter, error) {
	out := store.Filter{
		UserID: f.user, RequestID: f.request, Source: f.source, Error: f.error, Status: store.Status(f.status),
	}
	if f.status != "" && !slices.Contains(taskStatuses, f.status) {
		return out, invalidFlag("status", f.status, "one of "+strings.Join(taskStatuses, ", "))
	}
	if f.stage == "" {
		return out, nil
	}
	stage, status, ok := strings.Cut(f.stage, "=")
	if !ok || !slices.Contains(stageStatuses, status) {
		return out, invalidFlag("stage", f.stage, "STAGE=STATUS, where STATUS is one of "+strings.Join(stageStatuses, ", "))
	}
	if err := checkStage(stage); err != nil {
		return out, err
	}
	out.Stage, out.StageStatus = stage, store.Status(status)
	return out, nil
}

func checkStage(name string) error {
	graph := store.Video()
	if _, ok := graph.Stage(name); !ok {
		return usererr.Usagef("unknown stage %s; allowed: %s", usererr.Printable(name), strings.Join(graph.Stages(), ", "))
	}
	return nil
}

// completeWith makes the shell complete the values of a flag.
func completeWith(cmd *cobra.Command, flag string, values []string) {
	// It only fails for a flag that does not exist.
	_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}
