package media

// checkClocks rejects a source of which a part would be lost because its clock goes back, and warns of a clock that
// jumps ahead in all streams at once.
func checkClocks(info *Info, tracks map[int]*trackTiming) error {
	used := make([]int, 0, len(info.Audio)+1)
	if info.Video != nil {
		used = append(used, info.Video.Index)
	}
	for _, a := range info.Audio {
		used = append(used, a.Index)
	}
	pause := maxDuration
	for _, index := range used {
		track := tracks[index]
		if at, lost := track.lost(); lost > missingSeconds {
			return reject("", "the clock of stream %d starts again after %.1f s, so that %.1f s would be lost; "+
				"send the parts as files of their own", index, at, lost)
		}
		pause = min(pause, track.maxGap)
	}
	if len(used) > 1 && pause > maxForwardJump {
		info.warn("the source has a pause of %.1f s, or its clock jumps ahead", pause)
	}
	return nil
}

// lost returns how many seconds of a stream have times that have passed, and after which time most of them are.
func (t *trackTiming) lost() (at, seconds float64) {
	if t.jumpsAllowed || len(t.runs) == 0 {
		return 0, 0 // ffmpeg or the joins of the source undo the jumps
	}
	end, most := t.runs[0].end, 0.0
	for _, r := range t.runs[1:] {
		if overlap := min(end, r.end) - r.start; overlap > 0 {
			seconds += overlap
			if overlap > most {
				most, at = overlap, end-t.runs[0].start
			}
		}
		end = max(end, r.end)
	}
	return at, seconds
}
