package media

import (
	"cmp"
	"math"
	"slices"
	"strconv"
)

// Joins say how to read a source whose clock jumps, or whose streams continue under other PIDs, as a recording with one
// clock. ffmpeg would lose what follows, or shift the sound against the picture at every jump. Children read such a
// source through this process, which changes timestamps and PIDs on the way; no byte moves.
type Joins struct {
	// PacketSize is that of a transport stream: 188, 192 or 204 bytes. Grid are the offsets from which on packets
	// of that size follow one another.
	PacketSize int64   `json:"packet_size,omitempty"`
	Grid       []int64 `json:"grid,omitempty"`
	// Splices are in the order of their places in the file.
	Splices []Splice `json:"splices"`
	// Restarts is how often a clock starts again, Skipped how many seconds clocks jump ahead.
	Restarts int     `json:"restarts,omitempty"`
	Skipped  float64 `json:"skipped,omitempty"`
}

// Splice is a place from which on the packets of a stream are read with another clock, or as those of another stream.
type Splice struct {
	From int64 `json:"from"` // offset in the file
	// ID is the stream's PID in a transport stream, its start code in a program stream, its tag type in FLV.
	ID int `json:"id"`
	// To replaces the PID. Shift is added to timestamps, in ticks of the container.
	To    int   `json:"to,omitempty"`
	Shift int64 `json:"shift,omitempty"`
}

// maxSplices limits an Info. A file with more is full of noise; then ffmpeg removes the jumps in its way.
const maxSplices = 4096

// joinTicks are the ticks in a second of containers whose timestamps can be changed in place.
var joinTicks = map[string]float64{"mpegts": 90000, "mpeg": 90000, "flv": 1000}

// joinRun is a run of a stream, or of one that continues it.
type joinRun struct {
	clockRun
	stream int // index of the first of these streams
	id, to int
	video  bool
	moved  bool // it begins under another PID
	before *joinRun
	piece  *joinPiece
}

// joinPiece are the runs that have one clock.
type joinPiece struct {
	runs       []*joinRun
	start, end float64
	shift      float64
}

// planJoins returns nil if there is nothing to join or the container cannot be changed in place.
func planJoins(raw *rawProbe, packets *packetReader) *Joins {
	ticks := joinTicks[raw.Format.Name]
	runs := joinRuns(raw, packets.tracks)
	if ticks == 0 || len(runs) == 0 || raw.Format.Name == "mpegts" && packets.grid.size == 0 {
		return nil
	}
	pieces := joinPieces(runs, raw.Format.Name == "flv")
	j := &Joins{PacketSize: packets.grid.size, Grid: packets.grid.starts}
	last := map[int]Splice{}
	for _, r := range runs {
		s := Splice{From: r.from, ID: r.id, To: r.to, Shift: int64(math.Round(r.piece.shift * ticks))}
		if before := last[r.id]; s.Shift != before.Shift || s.To != before.To {
			j.Splices = append(j.Splices, s)
		}
		last[r.id] = s
	}
	if len(j.Splices) == 0 {
		return nil
	}
	if raw.jumpsTooOften = len(runs) > maxSplices || len(j.Grid) > maxSplices; raw.jumpsTooOften {
		return nil
	}
	for _, p := range pieces[1:] {
		switch r := p.guide(); {
		case r == nil:
		case r.start < r.before.end:
			j.Restarts++
		default:
			j.Skipped = round3(j.Skipped + r.start - r.before.end)
		}
	}
	return j
}

func warnOfJoins(raw *rawProbe, info *Info) {
	if raw.jumpsTooOften {
		info.warn("the clock of the file jumps more than %d times; picture and sound may drift apart", maxSplices)
	}
	j := raw.joins
	info.Joins = j
	if j != nil && j.Restarts > 0 {
		info.warn("the file has %d parts with a clock each; they are joined", j.Restarts+1)
	}
	if j != nil && j.Skipped > 0 {
		info.warn("the clock of the file jumps ahead by %.1f s; the parts are joined, and something may be missing between them",
			j.Skipped)
	}
}

// joinRuns lists the runs of all streams with picture or sound in the order of the file.
func joinRuns(raw *rawProbe, tracks map[int]*trackTiming) []*joinRun {
	var list []*joinRun
	continued := continuedStreams(raw, tracks)
	for i := range raw.Streams {
		s, track := &raw.Streams[i], tracks[raw.Streams[i].Index]
		id, ok := s.joinID(raw.Format.Name)
		if track == nil || !ok {
			continue
		}
		first, to := s, 0
		for continued[first.Index] != nil {
			first = continued[first.Index]
			to, _ = first.joinID(raw.Format.Name)
		}
		for n, run := range track.runs {
			if run.from >= 0 {
				list = append(list, &joinRun{
					clockRun: run, stream: first.Index, id: id, to: to, video: s.Type == "video", moved: n == 0,
				})
			}
		}
	}
	slices.SortStableFunc(list, func(a, b *joinRun) int { return cmp.Compare(a.from, b.from) })
	return list
}

// joinID is the ID of a Splice for the stream.
func (s *rawStream) joinID(container string) (id int, ok bool) {
	if s.Type != "video" && s.Type != "audio" || s.Disposition.Cover != 0 {
		return 0, false
	}
	if container == "flv" {
		return map[string]int{"audio": flvAudio, "video": flvVideo}[s.Type], true
	}
	n, err := strconv.ParseInt(s.ID, 0, 32)
	if container == "mpeg" && n < 0x100 {
		n = privateStream // which has substreams with these numbers
	}
	return int(n), err == nil
}

// joinPieces groups runs by clock, and computes how far each clock is shifted.
func joinPieces(runs []*joinRun, keepsPauses bool) []*joinPiece {
	var pieces []*joinPiece
	latest := map[int]*joinRun{}
	for _, r := range runs {
		r.before = latest[r.stream]
		latest[r.stream] = r
		if r.piece = r.clock(pieces, keepsPauses && len(latest) == 1); r.piece == nil {
			r.piece = &joinPiece{start: r.start, end: r.end}
			pieces = append(pieces, r.piece)
		}
		p := r.piece
		p.runs = append(p.runs, r)
		p.start, p.end = min(p.start, r.start), max(p.end, r.end)
	}
	for _, p := range pieces[min(1, len(pieces)):] {
		p.align()
	}
	return pieces
}

// clock returns the piece whose clock a run has; nil if it is a new one.
func (r *joinRun) clock(pieces []*joinPiece, keepsPauses bool) *joinPiece {
	if r.before != nil {
		step, same := r.start-r.before.end, r.before.piece
		if r.moved && step > -1 && step <= maxForwardJump || step > 0 && (keepsPauses || same.covers(r)) {
			return same
		}
	}
	if len(pieces) == 0 {
		return nil
	}
	newest := pieces[len(pieces)-1]
	isNew := !slices.ContainsFunc(newest.runs, func(o *joinRun) bool { return o.stream == r.stream })
	if isNew && r.start > newest.start-maxForwardJump && r.start < newest.end+maxForwardJump {
		return newest
	}
	return nil
}

// covers reports whether another stream of the piece has packets at the time of a run: then the run follows a pause.
func (p *joinPiece) covers(r *joinRun) bool {
	return slices.ContainsFunc(p.runs, func(o *joinRun) bool {
		return o.stream != r.stream && o.start <= r.start && r.start < o.end+maxForwardJump
	})
}

// guide is the run that decides where the piece begins: one of a picture if possible.
func (p *joinPiece) guide() *joinRun {
	var guide *joinRun
	for _, r := range p.runs {
		if r.before != nil && r.before.piece != p && (guide == nil || r.video && !guide.video) {
			guide = r
		}
	}
	return guide
}

// align lets the picture go on one frame after the last one, or later, so that no sound begins before the end of the
// sound before it: one of both would be lost. All streams of the piece are shifted alike, so that picture and sound keep
// their distance.
func (p *joinPiece) align() {
	guide := p.guide()
	if guide == nil {
		return
	}
	p.shift = guide.follows()
	for _, r := range p.runs {
		if r.before != nil && r.before.piece != p {
			p.shift = max(p.shift, r.follows())
		}
	}
}

// follows is the shift with which the run begins when the one before it ends.
func (r *joinRun) follows() float64 { return r.before.piece.shift + r.before.end - r.start }

// continuedStreams finds the streams of a transport stream that go on under another PID: one has the same codec and
// language, and begins after the other has ended.
func continuedStreams(raw *rawProbe, tracks map[int]*trackTiming) map[int]*rawStream {
	found, taken := map[int]*rawStream{}, map[int]bool{}
	if raw.Format.Name != "mpegts" {
		return found
	}
	spans := raw.programmeSpans(tracks)
	for i := range raw.Streams {
		s := &raw.Streams[i]
		var best *rawStream
		for j := range raw.Streams {
			o := &raw.Streams[j]
			isBetter := best == nil || best.tag("language") != s.tag("language") && o.tag("language") == s.tag("language")
			if isBetter && !taken[o.Index] && raw.continues(s, o, tracks, spans) {
				best = o
			}
		}
		if best != nil {
			found[s.Index], taken[best.Index] = best, true
		}
	}
	return found
}

func (raw *rawProbe) continues(s, before *rawStream, tracks map[int]*trackTiming, spans []clockRun) bool {
	a, b := languageTag(before.tag("language")), languageTag(s.tag("language"))
	if s.Type != before.Type || a != "" && b != "" && a != b || !tracks[before.Index].endsBefore(tracks[s.Index]) {
		return false
	}
	if s.Codec != before.Codec && !slices.Contains(relatedCodecs[s.Codec], before.Codec) {
		return false
	}
	if raw.sharesProgramme(s.Index, before.Index) {
		return true
	}
	// Another programme continues it only after all of it has ended.
	for _, n := range raw.programmesOf(before.Index) {
		for _, m := range raw.programmesOf(s.Index) {
			if spans[n].last >= spans[m].from {
				return false
			}
		}
	}
	return true
}

// programmeSpans are where the packets of each programme begin in the file: the first and the last.
func (raw *rawProbe) programmeSpans(tracks map[int]*trackTiming) []clockRun {
	spans := make([]clockRun, len(raw.Programs))
	for i := range spans {
		spans[i].from = math.MaxInt64
	}
	for index, t := range tracks {
		for _, n := range raw.programmesOf(index) {
			if len(t.runs) > 0 {
				spans[n].from = min(spans[n].from, t.runs[0].from)
				spans[n].last = max(spans[n].last, t.runs[len(t.runs)-1].last)
			}
		}
	}
	return spans
}

// endsBefore reports whether all packets of a stream are before those of another one in the file.
func (t *trackTiming) endsBefore(o *trackTiming) bool {
	return t != nil && o != nil && len(t.runs) > 0 && len(o.runs) > 0 && t.runs[len(t.runs)-1].last < o.runs[0].from
}
