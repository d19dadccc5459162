package video

import (
	"context"

	"github.com/cuelight/cuelight/stages"
)

// resultStore keeps the results of stages elsewhere than in DataDir: in a bucket, or in the directories of a
// coordinator. DataDir is scratch space then: it has the results that the attempts of this process need, under the
// same names.
type resultStore interface {
	// open makes results of the needed stages readable for an attempt of a stage, until they are closed.
	open(ctx context.Context, job *stages.Job, stage string, needs []string) (*openResults, error)
	// put stores the result of an attempt, which was made of the opened ones, and returns it as it is recorded.
	put(ctx context.Context, job *stages.Job, result any, from *openResults) (any, error)
}

// openResults are the results that an attempt reads.
type openResults struct {
	config Config   // with which a stage reads them
	dirs   []string // their names, if the store is a bucket
	ingest Ingest   // if the store is a coordinator
	close  func()
}

// withResultsIn returns a stage that reads and stores results in a store. Its attempts work in the scratch space.
func (s *scratch) withResultsIn(results resultStore, build func(Config) stages.Stage) stages.Stage {
	stage := build(s.config)
	needs := s.config.neededStages(stage.Name)
	if stage.Part != nil { // its Work joins the parts
		stage.Part = s.work(results, stage.Name, needs, func(c Config) stages.Work { return build(c).Part })
		needs = []string{chunkPrefix}
	}
	stage.Work = s.work(results, stage.Name, needs, func(c Config) stages.Work { return build(c).Work })
	return stage
}

// neededStages are the stages whose files a stage reads.
func (c Config) neededStages(stage string) []string {
	switch stage {
	case transcodeStage, metadataStage:
		return []string{ingestStage}
	case assembleStage:
		return []string{transcodeStage, metadataStage}
	case publishStage:
		if !c.copiesInService() {
			return []string{assembleStage}
		}
	}
	return nil
}

func (s *scratch) work(results resultStore, stage string, needs []string, build func(Config) stages.Work) stages.Work {
	return func(ctx context.Context, job *stages.Job) (any, error) {
		failed := func(err error) error { return s.config.classify(ctx, err, job.Attempt) }
		need, err := s.config.scratchNeed(ctx, job, stage)
		if err != nil {
			return nil, failed(err)
		}
		done, err := s.use(job.Task, need)
		if err != nil {
			return nil, failed(err)
		}
		defer done()
		from, err := results.open(ctx, job, stage, needs)
		if err != nil {
			return nil, failed(err)
		}
		defer from.close()
		result, err := build(from.config)(ctx, job)
		if err != nil {
			return nil, err // the stage has classified it
		}
		if result, err = results.put(ctx, job, result, from); err != nil {
			return nil, failed(err)
		}
		return result, nil
	}
}
