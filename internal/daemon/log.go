package daemon

import (
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/cuelight/cuelight/internal/console"
	"github.com/cuelight/cuelight/internal/dbconn"
	"github.com/cuelight/cuelight/internal/trace"
	"github.com/cuelight/cuelight/stages"
)

// NewLog returns a log on a standard stream: plain lines on a terminal, JSON otherwise.
func NewLog(to *console.Stream, level zapcore.LevelEnabler) *zap.Logger {
	config := zap.NewProductionEncoderConfig()
	config.EncodeDuration = zapcore.StringDurationEncoder
	encoder := zapcore.NewJSONEncoder
	if to.IsTerminal {
		encoder = zapcore.NewConsoleEncoder
		config.EncodeTime = zapcore.TimeEncoderOfLayout(time.TimeOnly)
		config.EncodeLevel = zapcore.CapitalLevelEncoder
		if to.HasColour {
			config.EncodeLevel = zapcore.CapitalColorLevelEncoder
		}
	} else {
		config.EncodeTime = zapcore.RFC3339NanoTimeEncoder
	}
	return zap.New(zapcore.NewCore(encoder(config), zapcore.Lock(zapcore.AddSync(to)), level))
}

// failureLogger returns a function that logs the first error of a series, and with a nil
// error the end of the series.
func failureLogger(log *zap.Logger, fails, works string) func(error) {
	var failing atomic.Bool
	return func(err error) {
		switch before := failing.Swap(err != nil); {
		case err != nil && !before:
			log.Warn(fails, zap.Error(err))
		case err == nil && before:
			log.Info(works)
		}
	}
}

// logEvent logs an event of the Runner.
func logEvent(log *zap.Logger, tracer *trace.Tracer, e stages.Event) {
	switch e.Kind {
	case stages.TaskUnpublished:
		log.Info("deleted task unpublished", zap.Stringer("task_id", e.Task))
		return
	case stages.TaskPurged:
		log.Info("deleted task purged", zap.Stringer("task_id", e.Task))
		return
	}
	if e.Task.IsZero() {
		logWorkerEvent(log, e)
		return
	}
	log = log.With(zap.Stringer("task_id", e.Task), zap.String("stage", e.Stage), zap.Int("attempt", e.Attempt))
	if e.Part > 0 {
		log = log.With(zap.Int("part", e.Part), zap.Int("parts", e.Parts))
	}
	if id := tracer.ID(e.Task, e.Traceparent); id != "" {
		log = log.With(zap.String("trace_id", id))
	}
	logAttemptEvent(log, e)
}

// logAttemptEvent logs an event of an attempt. A dead stage, which an operator must see,
// is an error; a failure that is retried is a warning.
func logAttemptEvent(log *zap.Logger, e stages.Event) {
	took := zap.Int64("duration_ms", e.Duration.Milliseconds())
	switch e.Kind {
	case stages.StageStarted:
		if e.Aged {
			log = log.With(zap.Bool("aged", true), zap.Float64("waited_s", e.Waited.Seconds()))
		}
		if e.Part > 0 {
			log.Info("part started")
			return
		}
		log.Info("stage started")
	case stages.StageDivided:
		log = log.With(took, zap.Int("parts", e.Count), zap.Int("kept", e.Kept))
		if e.Err != nil {
			log.Warn("parts of stage are done again", zap.Error(e.Err))
			return
		}
		log.Info("stage divided")
	case stages.PartCompleted:
		log.Info("part completed", took)
	case stages.StageCompleted:
		log.Info("stage completed", took)
	case stages.AttemptFailed:
		log.Warn("attempt failed", took, zap.Float64("retry_in_s", e.RetryIn.Seconds()), zap.Error(e.Err))
	case stages.StageDead:
		log.Error("stage dead", took, zap.Error(e.Err))
	case stages.ClaimReleased:
		if e.RetryIn > 0 {
			log.Warn("attempt postponed", took, zap.Float64("retry_in_s", e.RetryIn.Seconds()), zap.Error(e.Err))
			return
		}
		log.Info("claim released", took, zap.NamedError("reason", e.Err))
	case stages.ClaimRevoked:
		log.Info("claim revoked", took, zap.NamedError("reason", e.Err))
	}
}

// logWorkerEvent logs an event of this worker, or of others.
func logWorkerEvent(log *zap.Logger, e stages.Event) {
	switch e.Kind {
	case stages.WorkerStarted:
		log.Info("working", zap.Stringer("worker", e.Worker))
	case stages.DatabaseUnavailable:
		if dbconn.ExplainSchema(e.Err) != nil {
			log.Error("database has the wrong tables", zap.Error(e.Err))
			return
		}
		log.Warn("database unavailable", zap.Error(e.Err))
	case stages.DatabaseAvailable:
		log.Info("database available again")
	case stages.WorkerLost:
		log = log.With(zap.Stringer("worker", e.LostWorker), zap.String("name", e.LostName))
		if e.Predecessor {
			log.Info("an earlier process on this host ended without stopping; its claims have expired")
			return
		}
		log.Warn("worker lost")
	case stages.WakeMissed:
		log.Warn("found by the sweep: its notification was missed", zap.String("stage", e.Stage), zap.Int("count", e.Count))
	case stages.AttemptsExpired:
		log.Warn("claims of lost workers expired", zap.Int("count", e.Count))
	case stages.StageSuspended:
		log.Warn("stage suspended on this host", zap.String("stage", e.Stage), zap.Error(e.Err))
	case stages.StagePaused:
		log.Info("paused", zap.String("stage", e.Stage))
	case stages.StageResumed:
		log.Info("resumed", zap.String("stage", e.Stage))
	case stages.RemovalFailed:
		log.Warn("deleted tasks cannot be removed", zap.Error(e.Err))
	case stages.RowsPruned:
		log.Info("old rows pruned", zap.Int("finished_tasks", e.Pruned.Finished), zap.Int("dead_tasks", e.Pruned.Dead),
			zap.Int("workers", e.Pruned.Workers), zap.Int("audit_entries", e.Count))
	case stages.SweepFailed:
		log.Warn("the database works, but sweeps do not end in time", zap.Error(e.Err))
	case stages.PruneFailed:
		log.Warn("old rows cannot be pruned", zap.Error(e.Err))
	case stages.ClaimsUnchecked:
		log.Warn("the heartbeat works, but cancelled tasks and pauses cannot be read", zap.Error(e.Err))
	case stages.TransactionLeftOpen:
		log.Warn("a lost worker left a transaction open that this role may not end; end it with pg_terminate_backend",
			zap.Stringer("worker", e.LostWorker), zap.String("application_name", "cuelight "+e.LostWorker.String()))
	case stages.WorkerDraining:
		log.Info("draining", zap.Int("running", e.Count))
	case stages.WorkerStopped:
		log.Info("stopped", zap.Stringer("worker", e.Worker))
	}
}
