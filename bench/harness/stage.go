package harness

import "slices"

// Stage is one of the five stages.
type Stage int

// The stages, in an order in which they can run.
const (
	// Ingest is the first stage.
	Ingest Stage = iota
	// Transcode follows Ingest.
	Transcode
	// Metadata follows Ingest.
	Metadata
	// Assemble follows Transcode and Metadata.
	Assemble
	// Publish is the last stage.
	Publish
	// StageCount is the number of stages.
	StageCount int = iota
)

var stageNames = [StageCount]string{"ingest", "transcode", "metadata", "assemble", "publish"}

func (s Stage) String() string { return stageNames[s] }

// StageByName returns the stage with a name.
func StageByName(name string) (s Stage, ok bool) {
	i := slices.Index(stageNames[:], name)
	return Stage(i), i >= 0
}

var needs = [StageCount][]Stage{
	Transcode: {Ingest}, Metadata: {Ingest}, Assemble: {Transcode, Metadata}, Publish: {Assemble},
}

// Needs returns the stages that must be completed before this one.
func (s Stage) Needs() []Stage { return needs[s] }

var next = [StageCount][]Stage{Ingest: {Transcode, Metadata}, Assemble: {Publish}}

// Next returns the stages that become ready with the completion of this one alone.
func (s Stage) Next() []Stage { return next[s] }

// PrecedesAssemble reports whether Assemble waits for this stage, and for one other.
func (s Stage) PrecedesAssemble() bool { return s == Transcode || s == Metadata }
