package media

import (
	"cmp"
	"encoding/xml"
	"fmt"
	"math"
	"os"
	"path"
	"path/filepath"
	"strconv"

	"github.com/cuelight/cuelight/internal/media/captions"
)

type mpd struct {
	XMLName   xml.Name  `xml:"urn:mpeg:dash:schema:mpd:2011 MPD"`
	Profiles  string    `xml:"profiles,attr"`
	Type      string    `xml:"type,attr"`
	Duration  string    `xml:"mediaPresentationDuration,attr"`
	MinBuffer string    `xml:"minBufferTime,attr"`
	Period    mpdPeriod `xml:"Period"`
}

type mpdPeriod struct {
	ID    string   `xml:"id,attr"`
	Start string   `xml:"start,attr"`
	Sets  []mpdSet `xml:"AdaptationSet"`
}

type mpdSet struct {
	ID          int        `xml:"id,attr"`
	ContentType string     `xml:"contentType,attr"`
	MimeType    string     `xml:"mimeType,attr"`
	Language    string     `xml:"lang,attr,omitempty"`
	Alignment   bool       `xml:"segmentAlignment,attr,omitempty"`
	StartsSAP   int        `xml:"startWithSAP,attr,omitempty"`
	Priority    int        `xml:"selectionPriority,attr,omitempty"` // 1 if it is left out
	Colours     []mpdValue `xml:"EssentialProperty,omitempty"`      // of HDR: other players must ignore the set
	Label       string     `xml:"Label,omitempty"`
	Accessible  *mpdValue  `xml:"Accessibility,omitempty"`
	Role        *mpdValue  `xml:"Role,omitempty"`
	Streams     []mpdRepr  `xml:"Representation"`
}

type mpdRepr struct {
	ID        string       `xml:"id,attr"`
	Codecs    string       `xml:"codecs,attr,omitempty"`
	Bandwidth int64        `xml:"bandwidth,attr"`
	Width     int          `xml:"width,attr,omitempty"`
	Height    int          `xml:"height,attr,omitempty"`
	SAR       string       `xml:"sar,attr,omitempty"`
	FrameRate string       `xml:"frameRate,attr,omitempty"`
	Rate      int          `xml:"audioSamplingRate,attr,omitempty"`
	Channels  *mpdValue    `xml:"AudioChannelConfiguration,omitempty"`
	Tiles     *mpdValue    `xml:"EssentialProperty,omitempty"`
	BaseURL   string       `xml:"BaseURL,omitempty"`
	Template  *mpdTemplate `xml:"SegmentTemplate,omitempty"`
}

type mpdValue struct {
	Scheme string `xml:"schemeIdUri,attr"`
	Value  string `xml:"value,attr"`
}

type mpdTemplate struct {
	Timescale int64        `xml:"timescale,attr"`
	Duration  int64        `xml:"duration,attr,omitempty"` // instead of a timeline
	Init      string       `xml:"initialization,attr,omitempty"`
	Media     string       `xml:"media,attr"`
	Start     int          `xml:"startNumber,attr"`
	Timeline  *mpdTimeline `xml:"SegmentTimeline"`
}

type mpdTimeline struct {
	Entries []mpdEntry `xml:"S"`
}

type mpdEntry struct {
	Time   *int64 `xml:"t,attr,omitempty"`
	Length int64  `xml:"d,attr"`
	Repeat int    `xml:"r,attr,omitempty"`
}

// manifest returns the DASH manifest. It refers to the same segments as the HLS playlists, by paths relative to dir.
func (i inspected) manifest(dir string, out *Output) ([]byte, error) {
	m := &mpd{
		Profiles: "urn:mpeg:dash:profile:isoff-live:2011", Type: "static",
		Duration: xmlSeconds(roundUpMillisecond(out.Duration)), MinBuffer: xmlSeconds(segmentSeconds),
		Period: mpdPeriod{ID: "0", Start: "PT0S"},
	}
	for _, list := range videoSets(out.Video) {
		set := mpdSet{ContentType: "video", MimeType: "video/mp4", Alignment: true, StartsSAP: 1}
		set.Colours = hdrProperties(list[0].HDR)
		for _, r := range list {
			repr, err := i.representation(r)
			if err != nil {
				return nil, err
			}
			repr.Width, repr.Height, repr.SAR, repr.FrameRate = r.Width, r.Height, "1:1", xmlRate(r.FrameRate)
			set.Streams = append(set.Streams, repr)
		}
		m.Period.Sets = append(m.Period.Sets, set)
	}
	if err := i.addAudio(m, out.Audio); err != nil {
		return nil, err
	}
	if err := addCaptions(m, dir, out); err != nil {
		return nil, err
	}
	if out.Storyboard != nil {
		m.Period.Sets = append(m.Period.Sets, out.Storyboard.thumbnails(dir))
	}
	for n := range m.Period.Sets {
		m.Period.Sets[n].ID = n
	}
	text, err := xml.MarshalIndent(m, "", "  ")
	return append([]byte(xml.Header), append(text, '\n')...), err
}

// hdrProperties say how the values of HDR become light (ISO 23091-2).
func hdrProperties(hdr string) []mpdValue {
	if hdr == "" {
		return nil
	}
	c, cicp := rungColours[hdr], "urn:mpeg:mpegB:cicp:"
	return []mpdValue{
		{cicp + "ColourPrimaries", strconv.Itoa(c.primaries)}, {cicp + "TransferCharacteristics", strconv.Itoa(c.transfer)},
		{cicp + "MatrixCoefficients", strconv.Itoa(c.matrix)},
	}
}

// addAudio adds one adaptation set per audio stream of the source and number of channels, with all rungs. Players begin with the
// first.
func (i inspected) addAudio(m *mpd, list []Rendition) error {
	type key struct{ source, channels int }
	sets := map[key]int{}
	for _, r := range list {
		repr, err := i.representation(r)
		if err != nil {
			return err
		}
		repr.Rate = r.SampleRate
		repr.Channels = &mpdValue{"urn:mpeg:dash:23003:3:audio_channel_configuration:2011", strconv.Itoa(r.Channels)}
		at, ok := sets[key{r.Source, r.Channels}]
		if !ok {
			set := mpdSet{
				ContentType: "audio", MimeType: "audio/mp4", Language: bcp47(r.Language), Alignment: true, StartsSAP: 1,
			}
			role := cmp.Or(r.Role, "alternate")
			if r.Default {
				role = "main"
			}
			set.Role = &mpdValue{"urn:mpeg:dash:role:2011", role}
			if purpose := audioRoles[r.Role].purpose; purpose != "" {
				set.Accessible = &mpdValue{"urn:tva:metadata:cs:AudioPurposeCS:2007", purpose}
			}
			at = len(m.Period.Sets)
			sets[key{r.Source, r.Channels}] = at
			m.Period.Sets = append(m.Period.Sets, set)
		}
		m.Period.Sets[at].Streams = append(m.Period.Sets[at].Streams, repr)
	}
	if len(sets) > 1 {
		m.Period.Sets[sets[key{list[0].Source, list[0].Channels}]].Priority = 2
	}
	return nil
}

// addCaptions adds one adaptation set per text track: DASH plays the whole file.
func addCaptions(m *mpd, dir string, out *Output) error {
	for _, c := range out.Captions {
		name := path.Join(c.Dir, captions.WholeName)
		file, err := os.Stat(filepath.Join(dir, filepath.FromSlash(name)))
		if err != nil {
			return err
		}
		role := "subtitle"
		switch {
		case c.Forced:
			role = "forced-subtitle"
		case c.SDH:
			role = "caption"
		}
		m.Period.Sets = append(m.Period.Sets, mpdSet{
			ContentType: "text", MimeType: "text/vtt", Language: c.Language, Label: quotable(c.Name),
			Role: &mpdValue{"urn:mpeg:dash:role:2011", role},
			Streams: []mpdRepr{{
				ID: c.Dir, Bandwidth: max(1, int64(float64(8*file.Size())/max(out.Duration, 1))), BaseURL: name,
			}},
		})
	}
	return nil
}

func (i inspected) representation(r Rendition) (mpdRepr, error) {
	s, folder := i[r.Playlist], path.Dir(r.Playlist)
	repr := mpdRepr{
		ID: r.Name, Codecs: r.Codecs, Bandwidth: r.PeakBandwidth,
		Template: &mpdTemplate{Timescale: s.timescale, Init: r.Init, Media: path.Join(folder, "seg-$Number%05d$.m4s"), Timeline: &mpdTimeline{}},
	}
	at := int64(0)
	for n, g := range s.segments {
		if g.name != segmentName(n) {
			return mpdRepr{}, fmt.Errorf("segment %d of %s is called %q", n, r.Playlist, g.name)
		}
		line := repr.Template.Timeline.Entries
		if last := len(line) - 1; last >= 0 && g.start == at && line[last].Length == g.length {
			line[last].Repeat++
		} else {
			e := mpdEntry{Length: g.length}
			if n == 0 || g.start != at {
				e.Time = &g.start
			}
			repr.Template.Timeline.Entries = append(line, e)
		}
		at = g.start + g.length
	}
	return repr, nil
}

// roundUpMillisecond returns the next millisecond. If a manifest is no longer than
// the media, dash.js may take the end for a seek beyond it, and jumps back half a
// second instead of ending.
func roundUpMillisecond(v float64) float64 { return math.Floor(v*1000+1) / 1000 }

func xmlSeconds(v float64) string { return fmt.Sprintf("PT%.3fS", v) }

// xmlRate is a whole number or a fraction; DASH allows no decimals here.
func xmlRate(rate float64) string {
	for _, den := range []float64{1, 1001, 1000} {
		if num := rate * den; math.Abs(num-math.Round(num)) < 1e-6*num {
			if den == 1 {
				return strconv.Itoa(int(math.Round(num)))
			}
			return fmt.Sprintf("%d/%d", int(math.Round(num)), int(den))
		}
	}
	return fmt.Sprintf("%d/1000", int(math.Round(rate*1000)))
}
