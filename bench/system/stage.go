package system

import "slices"

// Stage is one of the five stages.
type Stage int

// The stages, in an order in which they can run.
const (
	Ingest Stage = iota
	Transcode
	Metadata
	Assemble
	Publish
)

// Stages are all of them.
var Stages = [...]Stage{Ingest, Transcode, Metadata, Assemble, Publish}

var stageNames = [len(Stages)]string{"ingest", "transcode", "metadata", "assemble", "publish"}

func (s Stage) String() string { return stageNames[s] }

// StageByName returns the stage with a name.
func StageByName(name string) Stage { return Stage(slices.Index(stageNames[:], name)) }

var needs = [len(Stages)][]Stage{
	Transcode: {Ingest}, Metadata: {Ingest}, Assemble: {Transcode, Metadata}, Publish: {Assemble},
}

// Needs returns the stages that must be completed before this one.
func (s Stage) Needs() []Stage { return needs[s] }
