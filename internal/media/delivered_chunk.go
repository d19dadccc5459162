package media

import (
	"slices"
	"strings"
)

// MaxChunkFileBytes is [MaxFileBytes] for a worker that delivers chunk n of a plan, or the audio if n is -1: it is 0 for
// a name that is not of that piece.
func MaxChunkFileBytes(info *Info, rungs []Rung, plan *ChunkPlan, n int, name string) int64 {
	dir, file, _ := strings.Cut(name, "/")
	if !slices.Contains(renditionDirs(pieceJobs(info, rungs, plan, n)), dir) {
		return 0
	}
	if k := segmentNumber(file); k >= 0 && n != audioChunk {
		if c := plan.Chunks[n]; k < c.Segment || k >= c.Segment+c.Segments {
			return 0
		}
	}
	return MaxFileBytes(info, rungs, name)
}

// MaxChunkTotalBytes is the size limit of all files of a chunk.
func MaxChunkTotalBytes(info *Info, rungs []Rung, plan *ChunkPlan, n int) int64 {
	seconds, segments := planTiming(info).maxSeconds, maxSegments(info)
	if n >= 0 && n < len(plan.Chunks) {
		c := plan.Chunks[n]
		seconds, segments = seconds-float64(c.Start)/videoTimescale, c.Segments
		if n+1 < len(plan.Chunks) {
			seconds = plan.Seconds(n, info)
		}
	}
	total := int64(0)
	for _, j := range pieceJobs(info, rungs, plan, n) {
		total += bytesAt(j.rung, seconds) + maxInitBytes + int64(segments)*segmentOverhead
	}
	return total
}

// dividedJobs lists the renditions that are made in chunks, and the others: copies and audio.
func dividedJobs(info *Info, rungs []Rung) (chunked, undivided []renditionJob) {
	video, audio := renditionJobs(info, rungs)
	for _, j := range slices.Concat(video, audio) {
		if j.rung.IsUndivided() {
			undivided = append(undivided, j)
		} else {
			chunked = append(chunked, j)
		}
	}
	return chunked, undivided
}

// pieceJobs lists the renditions of a chunk, or those of the audio and a copy; none if the plan has no such piece.
func pieceJobs(info *Info, rungs []Rung, plan *ChunkPlan, n int) []renditionJob {
	chunked, undivided := dividedJobs(info, rungs)
	switch {
	case info.Video == nil || n < audioChunk || n >= len(plan.Chunks) || len(plan.Chunks) == 0:
		return nil
	case n == audioChunk:
		return undivided
	}
	return chunked
}

func expectPiece(info *Info, rungs []Rung, plan *ChunkPlan, n int) expectation {
	e := expectation{dirs: renditionDirs(pieceJobs(info, rungs, plan, n)), maxBytes: func(name string) int64 {
		return MaxChunkFileBytes(info, rungs, plan, n, name)
	}}
	if n != audioChunk {
		e.first = plan.Chunks[n].Segment
	}
	return e
}
