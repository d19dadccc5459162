package media

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"os"
)

// Damage is what of a source is missing in its renditions because it could not
// be read or decoded.
type Damage struct {
	// Seconds is for about how long the picture is missing; the frame before
	// stays on the screen. Frames is about how many frames that are.
	Seconds float64 `json:"seconds"`
	Frames  int64   `json:"frames"`
	// Errors is how often demuxers and decoders complained, also about sound.
	Errors int64 `json:"errors"`
}

const (
	// enough is the share of a source that must be readable and decodable, for
	// those who would rather see it with holes than not at all. With less than
	// half, what is missing is more than what there is.
	minReadableShare = 0.5
	// A pause of holeFrames frames, and of holeSeconds, may be a hole.
	gapFrames, gapSeconds = 5, 0.25
)

// resync makes ffmpeg skip a damaged stretch, however long, in containers where
// it would take one for the source's end. Its versions differ in that.
func resyncOptions(container string) []string {
	if container == "mpegts" {
		return []string{"-resync_size", "1073741824"}
	}
	return nil
}

// judge measures what is missing of a picture, and refuses a source of which
// most is.
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
		return &RejectedError{
			Reason: fmt.Sprintf("the video is damaged: only %.0f %% of it could be decoded", 100*max(0, share)),
			Detail: out.tail,
		}
	}
	return nil
}

// missing adds up frames that were read and not decoded, and holes in what was
// decoded. Pauses of the source look like holes, but come without complaints.
func measureDamage(v *Video, decoded frameList, errors int64) *Damage {
	d := &Damage{Errors: errors, Seconds: v.Skipped}
	shown := decoded.end - decoded.first
	held, holes := decoded.gapSeconds, decoded.gaps
	if holes > errors {
		held, holes = 0, 0
	}
	usual := frameTime(v)
	if n := decoded.frames - holes; n > 0 && shown > held {
		usual = (shown - held) / float64(n)
	}
	held -= float64(holes) * usual // one frame is to be shown in each
	lost := float64(max(0, v.decodableFrames()-decoded.frames)) * usual
	if lost < gapFrames*usual {
		lost = 0 // decoders and demuxers count differently
	}
	d.Seconds = round3(d.Seconds + max(0, held, lost))
	if usual > 0 {
		d.Frames = int64(math.Round(d.Seconds / usual))
	}
	return d
}

// tell says in a sentence what is wrong with the source.
func (d *Damage) addWarning(o *Output) {
	switch {
	case d == nil:
	case d.Frames > 0:
		o.warn("the source is damaged: about %.1f s of the picture are missing, some %d frames", d.Seconds, d.Frames)
	case d.Errors == 1:
		o.warn("the source is damaged: the decoder complained once")
	default:
		o.warn("the source is damaged: the decoder complained %d times", d.Errors)
	}
}

const (
	// unreadShare of a file, and unreadBytes, after the last packet are more than
	// indexes and tags take.
	minUnreadShare, minUnreadBytes = 0.1, 64 << 10
	// padding is how much is looked at to know a file that was made longer than
	// what is in it.
	paddingProbe = 4 << 10
)

// unread is how many bytes at the end of a file no packet was read from, where
// that is not usual: the demuxer gave up. end is where the last packet ends.
func unreadBytesAtEnd(path, container string, size, end int64) (int64, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	switch container {
	case "mov,mp4,m4a,3gp,3g2,mj2":
		// Indexes may be anywhere, but are in boxes.
		end = boxesEnd(f, size)
	case "mpegts", "mpeg", "ogg", "matroska,webm", "flv", "asf", "avi", "mxf":
	default:
		return 0, nil
	}
	left := size - end
	if end <= 0 || left < minUnreadBytes || float64(left) < minUnreadShare*float64(size) {
		return 0, nil
	}
	tail := make([]byte, paddingProbe)
	if _, err := f.ReadAt(tail, size-paddingProbe); err != nil {
		return 0, err
	}
	if len(bytes.Trim(tail, "\x00")) == 0 {
		return 0, nil
	}
	return left, nil
}

// boxesEnd is how far a file consists of boxes.
func boxesEnd(f *os.File, size int64) int64 {
	var head [16]byte
	for at := int64(0); at < size; {
		if _, err := f.ReadAt(head[:8], at); err != nil {
			return at
		}
		length := int64(binary.BigEndian.Uint32(head[:4]))
		if length == 1 {
			if _, err := f.ReadAt(head[:], at); err != nil {
				return at
			}
			length = int64(binary.BigEndian.Uint64(head[8:]))
		}
		if length == 0 && head[4] != 0 || length > size-at {
			return size // the last box: to the end, or cut short
		}
		if length < 8 {
			return at
		}
		at += length
	}
	return size
}

// refuseUnread refuses a file of which most cannot be read, and warns of one of
// which a part cannot.
func checkUnread(info *Info, unread int64) error {
	share := 1 - float64(unread)/float64(info.Size)
	if share < minReadableShare {
		return &RejectedError{Reason: fmt.Sprintf("the file is damaged: only %.0f %% of it can be read", 100*share)}
	}
	if unread > 0 {
		info.warn("the source is damaged: the last %.0f %% of the file cannot be read", 100*(1-share))
	}
	return nil
}

// skipped is how much of the source's time its clock jumped over. A clock that
// was set anew jumps farther than the file claims to last.
func skippedTime(tr *trackTiming, info *Info) float64 {
	return round3(max(0, min(tr.skippedTime, info.HeaderDuration-tr.duration())))
}
