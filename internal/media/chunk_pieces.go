package media

import (
	"fmt"
	"slices"
)

// ChunkPiece is the result of one piece of a divided transcode, and the directory with its files.
type ChunkPiece struct {
	Dir    string
	Output *ChunkOutput
}

// ChunkError says which piece of a divided transcode is wrong. Encoding that piece again may help.
type ChunkError struct {
	Chunk int // -1 is the audio
	Err   error
}

// Error names the piece.
func (e *ChunkError) Error() string {
	if e.Chunk == audioChunk {
		return fmt.Sprintf("audio: %v", e.Err)
	}
	return fmt.Sprintf("%s: %v", chunkName(e.Chunk), e.Err)
}

func (e *ChunkError) Unwrap() error { return e.Err }

// orderPieces sorts the pieces by their numbers, of which none may be missing or there twice.
func orderPieces(plan *ChunkPlan, pieces []ChunkPiece, wantAudio bool) (chunks []ChunkPiece, sound *ChunkPiece, err error) {
	chunks = make([]ChunkPiece, len(plan.Chunks))
	for i, p := range pieces {
		switch n := p.Output.Chunk; {
		case n < audioChunk || n >= len(chunks) || n == audioChunk && !wantAudio:
			return nil, nil, &ChunkError{n, fmt.Errorf("%w: the plan has no such piece", ErrMismatch)}
		case n == audioChunk && sound != nil || n >= 0 && chunks[n].Output != nil:
			return nil, nil, &ChunkError{n, fmt.Errorf("%w: it is there twice", ErrMismatch)}
		case n == audioChunk:
			sound = &pieces[i]
		default:
			chunks[n] = p
		}
	}
	if wantAudio && sound == nil {
		return nil, nil, &ChunkError{audioChunk, fmt.Errorf("%w: it is missing", ErrMismatch)}
	}
	for n, p := range chunks {
		if p.Output == nil {
			return nil, nil, &ChunkError{n, fmt.Errorf("%w: it is missing", ErrMismatch)}
		}
	}
	return chunks, sound, nil
}

// addPieces adds up what the pieces measured. All chunks must have been encoded with the same settings.
func (o *Output) addPieces(plan *ChunkPlan, pieces []ChunkPiece, settings string) error {
	for _, p := range pieces {
		o.DecodeErrors += p.Output.DecodeErrors
		for _, w := range p.Output.Warnings {
			if !slices.Contains(o.Warnings, w) {
				o.warn("%s", w)
			}
		}
		if p.Output.Chunk == audioChunk {
			continue
		}
		c := plan.Chunks[p.Output.Chunk]
		if p.Output.Decoded != c.Decoded || p.Output.DecodedTimes != c.DecodedTimes {
			return &ChunkError{p.Output.Chunk, fmt.Errorf("%w: its %d decoded frames are not those of the plan, which has %d",
				ErrMismatch, p.Output.Decoded, c.Decoded)}
		}
		if p.Output.Settings != settings {
			return &ChunkError{p.Output.Chunk, fmt.Errorf("%w: it was encoded with %q, but chunk 0 with %q", ErrMismatch,
				p.Output.Settings, settings)}
		}
		o.Decoded += c.Decoded
		o.Expected += c.Frames
		o.DecodedEnd = max(o.DecodedEnd, p.Output.DecodedEnd)
	}
	o.Distinct = o.Decoded // PlanChunks divides nothing else
	o.warnOfDamage(o.DecodeErrors)
	return nil
}
