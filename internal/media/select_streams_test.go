package media

import (
	"fmt"
	"strings"
	"testing"
)

func TestChooseVideo_PrefersFramesThenDefaultThenSize(t *testing.T) {
	t.Parallel()
	type tr struct {
		frames   int64
		duration float64
		marked   int
		side     int
	}
	for name, c := range map[string]struct {
		tracks []tr
		want   int
	}{
		"the still picture of a motion photo":     {[]tr{{2, 1.8, 1, 2000}, {53, 1.8, 0, 1000}}, 1},
		"one that is shown for longer":            {[]tr{{2, 9, 1, 2000}, {53, 1.8, 0, 1000}}, 1},
		"a preview":                               {[]tr{{250, 10, 1, 200}, {25000, 1000, 0, 100}}, 1},
		"the mark decides between versions":       {[]tr{{2500, 100, 0, 1000}, {2490, 100, 1, 500}}, 1},
		"30 and 60 frames in a second":            {[]tr{{3000, 100, 1, 1000}, {6000, 100, 0, 1000}}, 0},
		"the size where nothing else does":        {[]tr{{250, 10, 0, 500}, {250, 10, 0, 1000}}, 1},
		"the first where all are alike":           {[]tr{{250, 10, 1, 500}, {250, 10, 1, 500}}, 0},
		"few frames for a long time, many for it": {[]tr{{600, 600, 1, 500}, {18000, 600, 0, 500}}, 1},
	} {
		raw, tracks := &rawProbe{}, map[int]*trackTiming{}
		for i, x := range c.tracks {
			s := rawStream{Index: i, Type: "video", Codec: "h264", Width: x.side, Height: x.side}
			s.Disposition.Default = x.marked
			raw.Streams = append(raw.Streams, s)
			tracks[i] = &trackTiming{packets: x.frames, end: x.duration}
		}
		got, err := chooseVideo(raw, tracks, &Info{Cover: -1}, decoderSet{"h264": {"h264"}})
		if err != nil || got.Index != c.want {
			t.Errorf("%s: track %+v, %v; want %d", name, got, err, c.want)
		}
	}
}

func TestTranscode_UsesVideoOfMotionPhoto(t *testing.T) {
	t.Parallel()
	src := makeClip(t, "a.mp4",
		"-f lavfi -i testsrc2=s=640x480:r=1:d=2 -f lavfi -i testsrc2=s=320x240:r=30:d=1.76 -f lavfi -i sine=d=1.7"+
			" -map 0 -map 1 -map 2 -disposition:v:0 default -disposition:v:1 0"+h264+"-c:a aac")
	r := publish(t, src)
	if r.info.Video.Index != 1 || r.out.Video[0].Frames != 53 || r.out.Video[0].Height != 240 {
		t.Errorf("stream %d, %+v", r.info.Video.Index, r.out.Video[0])
	}
}

func TestChooseAudio_SortsByRank(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		of   func(s []rawStream, tracks map[int]*trackTiming)
		want string
	}{
		"as they come":     {func([]rawStream, map[int]*trackTiming) {}, "[0 1 2]"},
		"default first":    {func(s []rawStream, _ map[int]*trackTiming) { s[2].Disposition.Default = 1 }, "[2 0 1]"},
		"commentary last":  {func(s []rawStream, _ map[int]*trackTiming) { s[0].Disposition.Comment = 1 }, "[1 2 0]"},
		"description last": {func(s []rawStream, _ map[int]*trackTiming) { s[0].Disposition.Impaired = 1 }, "[1 2 0]"},
		"commentary as default": {
			func(s []rawStream, _ map[int]*trackTiming) { s[1].Disposition.Comment, s[1].Disposition.Default = 1, 1 },
			"[1 0 2]",
		},
		"a jingle as default": {
			func(s []rawStream, t map[int]*trackTiming) { s[0].Disposition.Default, t[0].end = 1, 3 }, "[1 2 0]",
		},
	} {
		raw, tracks := &rawProbe{}, map[int]*trackTiming{}
		for i := range 3 {
			raw.Streams = append(raw.Streams, rawStream{Index: i, Type: "audio", Codec: "aac", Channels: 2, Rate: "48000"})
			tracks[i] = &trackTiming{packets: 100, end: 60}
		}
		c.of(raw.Streams, tracks)
		info := &Info{}
		chooseAudio(raw, tracks, info, decoderSet{"aac": {"aac"}})
		var order []int
		for i, a := range info.Audio {
			order = append(order, a.Index)
			if a.Default != (i == 0) {
				t.Errorf("%s: %+v", name, a)
			}
		}
		if fmt.Sprint(order) != c.want {
			t.Errorf("%s: %v; want %s", name, order, c.want)
		}
	}
}

func TestChooseCover_PrefersDecodableFrontCover(t *testing.T) {
	t.Parallel()
	type cover struct {
		codec, kind string
		side        int
	}
	for name, c := range map[string]struct {
		covers []cover
		want   int
	}{
		"the first": {[]cover{{"mjpeg", "", 100}, {"mjpeg", "Other", 200}}, 0},
		"the front": {
			[]cover{{"mjpeg", "Cover (back)", 100}, {"png", "Cover (front)", 100}, {"png", "Cover (front)", 100}}, 1,
		},
		"one that can be": {[]cover{{"jxl", "Cover (front)", 100}, {"png", "", 100}}, 1},
		"not too large":   {[]cover{{"png", "Cover (front)", 16000}, {"png", "", 100}}, 1},
		"none":            {[]cover{{"png", "", 0}}, -1},
	} {
		raw := &rawProbe{}
		for i, x := range c.covers {
			s := rawStream{
				Index: i, Type: "video", Codec: x.codec, Width: x.side, Height: x.side, Tags: map[string]string{"comment": x.kind},
			}
			s.Disposition.Cover = 1
			raw.Streams = append(raw.Streams, s)
		}
		info := &Info{Cover: -1}
		if info.chooseCover(raw, decoderSet{"mjpeg": {"mjpeg"}, "png": {"png"}}); info.Cover != c.want {
			t.Errorf("%s: %d; want %d", name, info.Cover, c.want)
		}
	}
}

func TestChooseSubtitles_TakesTeletextIfItsTimesAreKnown(t *testing.T) {
	t.Parallel()
	zvbi := decoderSet{teletext: {"libzvbi_teletextdec"}}
	for name, c := range map[string]struct {
		decoders                decoderSet
		joins                   *Joins
		tag, language, warnings string
	}{
		"one page":            {zvbi, nil, "ger", "ger", ""},
		"pages in a language": {zvbi, nil, "ger,ger", "ger", ""},
		"in several":          {zvbi, nil, "ger,fre", "", ""},
		"a clock that jumps":  {zvbi, &Joins{}, "ger", "none", "the clock of the file jumps"},
		"no libzvbi":          {nil, nil, "ger", "none", "install one with libzvbi"},
	} {
		raw := &rawProbe{joins: c.joins, Streams: []rawStream{
			{Index: 2, Type: "subtitle", Codec: teletext, Tags: map[string]string{"language": c.tag}},
		}}
		info := &Info{}
		chooseSubtitles(raw, info, c.decoders)
		language := "none"
		if len(info.Subtitles) == 1 {
			language = info.Subtitles[0].Language
		}
		warnings := strings.Join(info.Warnings, "\n")
		if language != c.language || !strings.Contains(warnings, c.warnings) || c.warnings == "" && warnings != "" {
			t.Errorf("%s: %q %q", name, language, warnings)
		}
	}
}

func TestProbe_UsesTheStreamsOfOneProgramme(t *testing.T) {
	t.Parallel()
	const programmes = " -program title=SD:st=0:st=1 -program title=HD:st=2:st=3 -c:a mp2 "
	picture := "-f lavfi -i testsrc2=s=64x64:r=25:d=1" + tone + "-f lavfi -i testsrc2=s=128x128:r=25:d=1" + tone +
		"-map 0 -map 1 -map 2 -map 3" + h264
	info, err := fastTools.Probe(t.Context(), makeClip(t, "a.ts", picture+programmes))
	if err != nil {
		t.Fatal(err)
	}
	if info.Video.Index != 2 || len(info.Audio) != 1 || info.Audio[0].Index != 3 || len(info.Warnings) != 1 ||
		!strings.Contains(info.Warnings[0], "2 (HD) is used, 1 (SD) left out") {
		t.Errorf("video %d, audio %+v, warnings %q", info.Video.Index, info.Audio, info.Warnings)
	}
	radio := tone + tone + tone + tone + "-map 0 -map 1 -map 2 -map 3"
	info, err = fastTools.Probe(t.Context(), makeClip(t, "a.ts", radio+programmes))
	if err != nil {
		t.Fatal(err)
	}
	if len(info.Audio) != 2 || info.Audio[0].Index != 0 || info.Audio[1].Index != 1 || len(info.Warnings) != 1 {
		t.Errorf("radio: audio %+v, warnings %q", info.Audio, info.Warnings)
	}
}

func TestProbe_WarnsOfPicturesThatAreLeftOut(t *testing.T) {
	t.Parallel()
	src := makeClip(t, "a.mkv", "-f lavfi -i testsrc2=s=64x64:r=25:d=1 -f lavfi -i testsrc2=s=96x96:r=25:d=2 "+
		"-map 0 -map 1 -disposition:v 0"+h264)
	info, err := fastTools.Probe(t.Context(), src)
	if err != nil {
		t.Fatal(err)
	}
	if len(info.Warnings) != 1 || !strings.Contains(info.Warnings[0], "stream 0 (1.0 s) is left out") {
		t.Errorf("warnings %q", info.Warnings)
	}
}
