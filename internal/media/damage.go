package media

import "math"

const (
	// minReadableShare is the share of a source that must be readable and
	// decodable. Above it, a damaged video is better than none.
	minReadableShare = 0.5
	// A pause of at least gapFrames frames and gapSeconds may be a gap.
	gapFrames, gapSeconds = 5, 0.25
)

// assessDamage measures what is missing of the picture, and rejects a source
// that lacks most of it.
func (o *Output) assessDamage(info *Info, decoded frameList, out stderrReport) error {
	if out.errors == 0 {
		return nil
	}
	v := info.Video
	o.Damage = measureDamage(v, decoded, out.errors)
	length := v.Duration + v.Skipped - v.Undecodable
	share := 1 - o.Damage.Seconds/max(length, 1e-9)
	if n := v.decodableFrames(); o.Decoded < n {
		share = min(share, float64(o.Decoded)/float64(n))
	}
	if share < minReadableShare {
		return reject(out.tail, "the video is damaged: only %.0f %% of it could be decoded; send an intact copy",
			100*max(0, share))
	}
	return nil
}

// measureDamage adds frames that were not decoded and gaps between decoded
// frames. A pause of the source looks like a gap, but causes no error message.
func measureDamage(v *Video, decoded frameList, errors int64) *Damage {
	d := &Damage{Errors: errors, Seconds: v.Skipped}
	shown := decoded.end - decoded.first
	inGaps, gaps := decoded.gapSeconds, decoded.gaps
	if gaps > errors {
		inGaps, gaps = 0, 0
	}
	usual := frameTime(v)
	if n := decoded.frames - gaps; n > 0 && shown > inGaps {
		usual = (shown - inGaps) / float64(n)
	}
	inGaps -= float64(gaps) * usual // each gap shows the frame before it
	lost := float64(max(0, v.decodableFrames()-decoded.frames)) * usual
	if lost < gapFrames*usual {
		lost = 0 // decoders and demuxers count differently
	}
	d.Seconds = round3(d.Seconds + max(0, inGaps, lost))
	if usual > 0 {
		d.Frames = int64(math.Round(d.Seconds / usual))
	}
	return d
}

// warnOfDamage describes the damage for the sender. Errors may be in audio alone.
func (o *Output) warnOfDamage(errors int64) {
	if o.Damage == nil && errors > 0 {
		o.Damage = &Damage{Errors: errors}
	}
	switch d := o.Damage; {
	case d == nil:
	case d.Frames > 0:
		o.warn("the source is damaged: about %.1f s of the picture are missing (%d frames)", d.Seconds, d.Frames)
	case d.Errors == 1:
		o.warn("the source is damaged: the decoder reported one error")
	default:
		o.warn("the source is damaged: the decoder reported %d errors", d.Errors)
	}
}

// skippedTime is how much of the source its timestamps jump over. A clock that
// was reset jumps farther than the declared duration.
func skippedTime(track *trackTiming, info *Info) float64 {
	if info.Joins != nil {
		// More than the recording itself is another clock rather than a lost part.
		return min(info.Joins.Skipped, track.duration())
	}
	return round3(max(0, min(track.skippedTime, info.HeaderDuration-track.duration())))
}
