package harness

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

// StageNamed returns the stage with a name.
func StageNamed(name string) (Stage, bool) {
	for s, n := range stageNames {
		if n == name {
			return Stage(s), true
		}
	}
	return 0, false
}

// Needs returns the stages that must be completed before this one.
func (s Stage) Needs() []Stage {
	switch s {
	case Transcode, Metadata:
		return []Stage{Ingest}
	case Assemble:
		return []Stage{Transcode, Metadata}
	case Publish:
		return []Stage{Assemble}
	}
	return nil
}

// Next returns the stages that become ready with the completion of this one alone.
func (s Stage) Next() []Stage {
	switch s {
	case Ingest:
		return []Stage{Transcode, Metadata}
	case Assemble:
		return []Stage{Publish}
	}
	return nil
}

// PrecedesAssemble reports whether Assemble waits for this stage, and for one other.
func (s Stage) PrecedesAssemble() bool { return s == Transcode || s == Metadata }
