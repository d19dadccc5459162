package remote

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

// ProtocolVersion is the version of the protocol. A coordinator refuses workers of others.
const ProtocolVersion = 1

// The bodies of requests and responses. Durations are in seconds; stages have their names.
type (
	pipelineBody struct {
		Protocol int         `json:"protocol"`
		Pipeline string      `json:"pipeline"`
		Stages   []stageBody `json:"stages"`
	}
	stageBody struct {
		Name    string   `json:"name"`
		Needs   []string `json:"needs"`
		Divides bool     `json:"divides,omitempty"` // claims are for parts of it
	}

	registerRequest struct {
		Protocol        int             `json:"protocol"`
		Pipeline        string          `json:"pipeline"`
		Name            string          `json:"name"`
		Host            string          `json:"host"`
		PID             int             `json:"pid"`
		ProcessIdentity string          `json:"process_identity"`
		Version         string          `json:"version"`
		Lease           float64         `json:"lease_s"`
		Capabilities    json.RawMessage `json:"capabilities,omitempty"`
		Metadata        json.RawMessage `json:"metadata,omitempty"`
	}
	registerResponse struct {
		Protocol  int      `json:"protocol"`
		Worker    store.ID `json:"worker_id"`
		Lease     float64  `json:"lease_s"`
		Heartbeat float64  `json:"heartbeat_s"`
		// Direct says that no HTTP proxy has passed the request on. Peer is the address and port from
		// which it came: if they are the worker's own, no other proxy has, either.
		Direct bool   `json:"direct"`
		Peer   string `json:"peer"`
	}

	exchangeRequest struct {
		Worker store.ID `json:"worker_id"`
		// Sequence counts the exchanges of the worker, from 1. The slots of one that another has overtaken are
		// ignored, and one that is missing went to another coordinator. Default 0: the latest counts.
		Sequence int64        `json:"sequence,omitempty"`
		Reports  []reportBody `json:"reports,omitempty"`
		// Held are the tokens of all claims that the worker knows. The answer has the others that it
		// holds. Default nil: that is not checked.
		Held []store.ID `json:"held"`
		// FreeSlots are by stage. Default nil: the answer has no new claims, and the slots of a request
		// that waits remain valid.
		FreeSlots map[string]int `json:"free_slots"`
		// Wait is how long the answer may wait for claims. More than 30 is 30.
		Wait float64 `json:"wait_s,omitempty"`
	}
	exchangeResponse struct {
		Claims []claimBody `json:"claims"`
		// Stale are tokens of reports that changed nothing because the claim was lost; Retry those
		// of reports that must be sent again, because the row is locked.
		Stale []lostBody `json:"stale,omitempty"`
		Retry []store.ID `json:"retry,omitempty"`
		// Checking are reports of completed stages whose files are being checked. They must be sent again.
		Checking []checkingBody `json:"checking,omitempty"`
		// Refused are completed stages whose results are not accepted: the attempts have failed, or count for
		// none if another coordinator has received their files.
		Refused []refusedBody `json:"refused,omitempty"`
		Control controlsBody  `json:"controls"`
	}
	reportBody struct {
		Token   store.ID        `json:"token"`
		Task    store.ID        `json:"task_id,omitzero"` // to find out whether it was recorded before
		Outcome engine.Outcome  `json:"outcome"`
		Result  json.RawMessage `json:"result,omitempty"`
		Error   string          `json:"error,omitempty"`
		Class   string          `json:"error_class,omitempty"`
		// Permanent: no other attempt can succeed. RetryIn: default the stage's backoff.
		Permanent bool     `json:"permanent,omitempty"`
		RetryIn   *float64 `json:"retry_in_s,omitempty"`
	}
	checkingBody struct {
		Token   store.ID `json:"token"`
		RetryIn float64  `json:"retry_in_s"`
	}
	refusedBody struct {
		Token   store.ID `json:"token"`
		Error   string   `json:"error"`
		Dead    bool     `json:"dead"` // no other attempt follows
		RetryIn float64  `json:"retry_in_s"`
	}
	claimBody struct {
		Task        store.ID        `json:"task_id"`
		Stage       string          `json:"stage"`
		Part        int             `json:"part,omitempty"`  // of a stage that divides; Spec says what to do
		Parts       int             `json:"parts,omitempty"` // how many there are
		Spec        json.RawMessage `json:"spec,omitempty"`
		Token       store.ID        `json:"token"`
		Attempt     int             `json:"attempt"`
		Priority    int16           `json:"priority"`
		Source      string          `json:"source"`
		Params      json.RawMessage `json:"params"`
		UserID      string          `json:"user_id,omitempty"`
		Traceparent string          `json:"traceparent,omitempty"`
		Waited      float64         `json:"waited_s"`
	}
	lostBody struct {
		Token     store.ID `json:"token"`
		Cancelled bool     `json:"cancelled"`
	}

	// controlsBody is what operators want of the worker, in every answer.
	controlsBody struct {
		Paused []string `json:"paused"` // stages of which nothing is claimed
		Drain  bool     `json:"drain"`  // finish the attempts, claim nothing more, and stop
		// ClaimsLost says that the worker has lost claims; the answer to a heartbeat names them.
		ClaimsLost bool `json:"claims_lost,omitempty"`
	}

	heartbeatRequest struct {
		Worker  store.ID      `json:"worker_id"`
		Running []runningBody `json:"running"` // all claims of the worker, also those not started
	}
	runningBody struct {
		Token   store.ID `json:"token"`
		Percent float64  `json:"percent"` // negative: not known
		Speed   float64  `json:"speed,omitempty"`
		ETA     float64  `json:"eta_s,omitempty"`
		Note    string   `json:"note,omitempty"`
		// Started is false for a claim that waits for a slot. Progressed: since the last heartbeat.
		Started    bool `json:"started"`
		Progressed bool `json:"progressed,omitempty"`
	}
	heartbeatResponse struct {
		Lost    []lostBody   `json:"lost"`
		Control controlsBody `json:"controls"`
	}

	workerRequest struct {
		Worker store.ID `json:"worker_id"`
	}
	claimsRequest struct {
		Worker store.ID   `json:"worker_id"`
		Tokens []store.ID `json:"tokens"`
	}
	claimsResponse struct {
		Lost []lostBody `json:"lost"`
	}

	// ownWorkersResponse has as much of the live workers of a key as a restarted one needs to find
	// out which of them were processes of its host that have ended.
	ownWorkersResponse struct {
		Workers []ownWorkerBody `json:"workers"`
	}
	ownWorkerBody struct {
		Worker          store.ID `json:"worker_id"`
		Name            string   `json:"name"`
		Host            string   `json:"host"`
		PID             int      `json:"pid"`
		ProcessIdentity string   `json:"process_identity"`
	}
	expireBody struct {
		Workers []store.ID `json:"worker_ids"`
	}
)

func (c controlsBody) equal(d controlsBody) bool {
	return c.Drain == d.Drain && c.ClaimsLost == d.ClaimsLost && slices.Equal(c.Paused, d.Paused)
}

// noContent is the answer of an operation that returns nothing: the status 204.
type noContent struct{}

func newClaimBody(c engine.Claim, stage string) claimBody {
	return claimBody{
		Task: c.Task, Stage: stage, Part: c.Part, Parts: c.Parts, Spec: c.Spec, Token: c.Token,
		Attempt: c.Attempt, Priority: int16(-c.Position.Rank), Source: c.Source,
		Params: c.Params, UserID: c.UserID, Traceparent: c.Traceparent, Waited: c.Waited.Seconds(),
	}
}

func (c claimBody) claim(stage int) engine.Claim {
	return engine.Claim{
		Task: c.Task, Stage: stage, Part: c.Part, Parts: c.Parts, Spec: c.Spec, Token: c.Token,
		Attempt: c.Attempt, Position: engine.Position{Rank: -int32(c.Priority), Task: c.Task}, Source: c.Source,
		Params: c.Params, UserID: c.UserID, Traceparent: c.Traceparent, Waited: seconds(c.Waited),
	}
}

// seconds returns a duration of up to a year; others, and NaN, are zero.
func seconds(s float64) time.Duration {
	if !(s > 0 && s < 366*24*3600) {
		return 0
	}
	return time.Duration(s * float64(time.Second))
}
