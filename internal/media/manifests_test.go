package media

import (
	"encoding/xml"
	"fmt"
	"image/jpeg"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/cuelight/cuelight/internal/formattest"
)

func sampleOutput() *Output {
	return &Output{
		Video: []Rendition{
			{
				Name: "720p", Playlist: "720p/index.m3u8", Codecs: "avc1.64001f", Width: 1280, Height: 720,
				FrameRate: 30000.0 / 1001, PeakBandwidth: 2000, AverageBandwidth: 1500,
			},
			{
				Name: "240p", Playlist: "240p/index.m3u8", Codecs: "avc1.640015", Width: 426, Height: 240,
				FrameRate: 30000.0 / 1001, PeakBandwidth: 400, AverageBandwidth: 300,
			},
		},
		Audio: []Rendition{
			{
				Name: "audio", Group: "audio", Playlist: "audio/index.m3u8", Codecs: "mp4a.40.2", Channels: 2, PeakBandwidth: 130,
				AverageBandwidth: 128, Default: true, Language: "ger", Title: "Deutsch \"laut\"\n",
			},
			{
				Name: "audio-2", Group: "audio", Playlist: "audio-2/index.m3u8", Codecs: "mp4a.40.2", Channels: 2,
				PeakBandwidth: 140, AverageBandwidth: 120, Language: "eng", Source: 2,
			},
			{
				Name: "audio-3", Group: "audio", Playlist: "audio-3/index.m3u8", Codecs: "mp4a.40.2", Channels: 2,
				PeakBandwidth: 140, AverageBandwidth: 120, Language: "eng", Source: 3,
			},
		},
	}
}

func TestMultivariantPlaylist_ListsVideoAndAudio(t *testing.T) {
	t.Parallel()
	out := sampleOutput()
	iframes := []iframePlaylist{
		{of: out.Video[0], name: "720p/iframes.m3u8", peak: 90, average: 80},
		{of: out.Video[1], name: "240p/iframes.m3u8", peak: 30, average: 20},
	}
	text := RebaseMaster(multivariantPlaylist(out, iframes), "g7/")
	want := `#EXTM3U
#EXT-X-VERSION:7
#EXT-X-INDEPENDENT-SEGMENTS
#EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID="audio",NAME="Deutsch laut",LANGUAGE="de",DEFAULT=YES,AUTOSELECT=YES,` +
		`CHANNELS="2",URI="g7/audio/index.m3u8"
#EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID="audio",NAME="English",LANGUAGE="en",DEFAULT=NO,AUTOSELECT=YES,` +
		`CHANNELS="2",URI="g7/audio-2/index.m3u8"
#EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID="audio",NAME="English (2)",LANGUAGE="en",DEFAULT=NO,AUTOSELECT=YES,` +
		`CHANNELS="2",URI="g7/audio-3/index.m3u8"
#EXT-X-STREAM-INF:BANDWIDTH=2140,AVERAGE-BANDWIDTH=1628,CODECS="avc1.64001f,mp4a.40.2",` +
		`RESOLUTION=1280x720,FRAME-RATE=29.970,VIDEO-RANGE=SDR,AUDIO="audio",CLOSED-CAPTIONS=NONE
g7/720p/index.m3u8
#EXT-X-STREAM-INF:BANDWIDTH=540,AVERAGE-BANDWIDTH=428,CODECS="avc1.640015,mp4a.40.2",` +
		`RESOLUTION=426x240,FRAME-RATE=29.970,VIDEO-RANGE=SDR,AUDIO="audio",CLOSED-CAPTIONS=NONE
g7/240p/index.m3u8
#EXT-X-STREAM-INF:BANDWIDTH=140,AVERAGE-BANDWIDTH=128,CODECS="mp4a.40.2",AUDIO="audio",CLOSED-CAPTIONS=NONE
g7/audio/index.m3u8
#EXT-X-I-FRAME-STREAM-INF:BANDWIDTH=90,AVERAGE-BANDWIDTH=80,CODECS="avc1.64001f",RESOLUTION=1280x720,VIDEO-RANGE=SDR,` +
		`URI="g7/720p/iframes.m3u8"
#EXT-X-I-FRAME-STREAM-INF:BANDWIDTH=30,AVERAGE-BANDWIDTH=20,CODECS="avc1.640015",RESOLUTION=426x240,VIDEO-RANGE=SDR,` +
		`URI="g7/240p/iframes.m3u8"
`
	if text != want {
		t.Errorf("got\n%s\nwant\n%s", text, want)
	}
	if n, err := formattest.Playlist([]byte(text)); err != nil || n != 5 { // with those of pictures
		t.Errorf("other parsers find %d variants, %v", n, err)
	}
}

// The first sound is in 5.1, too. The group of 5.1 has the same sounds as that of stereo, with the same names.
func TestMultivariantPlaylist_ListsSurroundAfterStereo(t *testing.T) {
	t.Parallel()
	out := sampleOutput()
	out.Video = out.Video[1:]
	out.Audio[1].Role, out.Audio[2].Role = roleDescription, roleCommentary
	out.Audio = append(out.Audio, Rendition{
		Name: "audio-surround", Group: "audio-surround", Playlist: "audio-surround/index.m3u8", Codecs: "mp4a.40.2", Channels: 6,
		PeakBandwidth: 390, AverageBandwidth: 384, Default: true, Language: "ger", Title: "Deutsch \"laut\"\n",
	})
	const media = `#EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID="GROUP",NAME="Deutsch laut",LANGUAGE="de",DEFAULT=YES,AUTOSELECT=YES,` +
		`CHANNELS="COUNT",URI="GROUP/index.m3u8"
#EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID="GROUP",NAME="English (description)",LANGUAGE="en",DEFAULT=NO,AUTOSELECT=YES,` +
		`CHARACTERISTICS="public.accessibility.describes-video",CHANNELS="2",URI="audio-2/index.m3u8"
#EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID="GROUP",NAME="English (commentary)",LANGUAGE="en",DEFAULT=NO,AUTOSELECT=NO,` +
		`CHANNELS="2",URI="audio-3/index.m3u8"
`
	of := func(group, channels string) string {
		return strings.NewReplacer(`"GROUP"`, `"`+group+`"`, "GROUP/", group+"/", "COUNT", channels).Replace(media)
	}
	const video = `,CODECS="avc1.640015,mp4a.40.2",RESOLUTION=426x240,FRAME-RATE=29.970,VIDEO-RANGE=SDR,AUDIO=`
	want := "#EXTM3U\n#EXT-X-VERSION:7\n#EXT-X-INDEPENDENT-SEGMENTS\n" + of("audio", "2") +
		`#EXT-X-STREAM-INF:BANDWIDTH=540,AVERAGE-BANDWIDTH=428` + video + `"audio",CLOSED-CAPTIONS=NONE
240p/index.m3u8
` + of("audio-surround", "6") + `#EXT-X-STREAM-INF:BANDWIDTH=790,AVERAGE-BANDWIDTH=684` + video + `"audio-surround",CLOSED-CAPTIONS=NONE
240p/index.m3u8
#EXT-X-STREAM-INF:BANDWIDTH=140,AVERAGE-BANDWIDTH=128,CODECS="mp4a.40.2",AUDIO="audio",CLOSED-CAPTIONS=NONE
audio/index.m3u8
`
	text := multivariantPlaylist(out, nil)
	if text != want {
		t.Errorf("got\n%s\nwant\n%s", text, want)
	}
	if n, err := formattest.Playlist([]byte(text)); err != nil || n != 3 {
		t.Errorf("other parsers find %d variants, %v", n, err)
	}
	out.Video = nil
	text = multivariantPlaylist(out, nil)
	last := `CODECS="mp4a.40.2",AUDIO="audio-surround"` + "\naudio-surround/index.m3u8\n"
	if !strings.HasSuffix(text, last) || strings.Contains(text, "CLOSED") {
		t.Errorf("without a picture\n%s", text)
	}
}

func TestVideoSets_BeginWithH264(t *testing.T) {
	t.Parallel()
	var list []Rendition
	for _, codecs := range []string{"av01.0.12M.08", "avc1.640028", "hvc1.1.6.L120.90", "av01.0.08M.08", "avc1.64001f"} {
		list = append(list, Rendition{Codecs: codecs})
	}
	var got []string
	for _, set := range videoSets(list) {
		for _, r := range set {
			got = append(got, r.Codecs)
		}
		got = append(got, "|")
	}
	want := "avc1.640028 avc1.64001f | av01.0.12M.08 av01.0.08M.08 | hvc1.1.6.L120.90 |"
	if text := strings.Join(got, " "); text != want {
		t.Errorf("got %s; want %s", text, want)
	}
}

func TestMultivariantPlaylist_ListsAudioAlone(t *testing.T) {
	t.Parallel()
	out := &Output{Audio: []Rendition{
		{
			Name: "audio", Group: "audio", Playlist: "audio/index.m3u8", Codecs: "mp4a.40.2", PeakBandwidth: 130,
			AverageBandwidth: 128,
		},
		{
			Name: "audio-low", Group: "audio-low", Playlist: "audio-low/index.m3u8", Codecs: "mp4a.40.2", PeakBandwidth: 66,
			AverageBandwidth: 64,
		},
	}}
	text := multivariantPlaylist(out, nil)
	want := `#EXTM3U
#EXT-X-VERSION:7
#EXT-X-INDEPENDENT-SEGMENTS
#EXT-X-STREAM-INF:BANDWIDTH=130,AVERAGE-BANDWIDTH=128,CODECS="mp4a.40.2"
audio/index.m3u8
#EXT-X-STREAM-INF:BANDWIDTH=66,AVERAGE-BANDWIDTH=64,CODECS="mp4a.40.2"
audio-low/index.m3u8
`
	if text != want {
		t.Errorf("got\n%s\nwant\n%s", text, want)
	}
}

func TestWriteManifests_RejectsAnEmptyOutput(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if fastTools.WriteManifests(t.Context(), dir, &Output{}) == nil {
		t.Error("an empty output was listed")
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("%v, %v were left behind", err, entries)
	}
}

// Each range of an I-frame playlist, after the initialization segment, is a picture that can be decoded alone: that at the start
// of its segment.
func TestWriteManifests_ListsTheFirstPictureOfEachSegment(t *testing.T) {
	t.Parallel()
	r := publish(t, makeClip(t, "a.mp4", "-f lavfi -i testsrc2=s=426x240:r=10:d=14"+h264))
	folder := filepath.Join(r.dir, "240p")
	text := mustRead(t, filepath.Join(folder, iframesName))
	if !strings.Contains(mustRead(t, filepath.Join(r.dir, MasterName)), `URI="240p/iframes.m3u8"`) {
		t.Error("the multivariant playlist does not name it")
	}
	if _, err := formattest.Playlist([]byte(text)); err != nil || !strings.Contains(text, "#EXT-X-I-FRAMES-ONLY\n") {
		t.Errorf("%v\n%s", err, text)
	}
	entries := regexp.MustCompile(`#EXTINF:([\d.]+),\n#EXT-X-BYTERANGE:(\d+)@(\d+)\n(.+)\n`).FindAllStringSubmatch(text, -1)
	if len(entries) != 3 {
		t.Fatalf("%d pictures; want 3\n%s", len(entries), text)
	}
	for i, e := range entries {
		if want := []string{"6.000000", "6.000000", "2.000000"}[i]; e[1] != want {
			t.Errorf("picture %d lasts %s; want %s", i, e[1], want)
		}
		length, _ := strconv.Atoi(e[2]) // they are digits
		from, _ := strconv.Atoi(e[3])
		segment := mustRead(t, filepath.Join(folder, e[4]))
		got := frameSums(t, mustRead(t, filepath.Join(folder, "init.mp4"))+segment[from:from+length])
		want := frameSums(t, mustRead(t, filepath.Join(folder, "init.mp4"))+segment)
		if len(got) != 1 || len(want) < 20 || got[0] != want[0] {
			t.Errorf("picture %d is %q; want the first of %d, %.1q", i, got, len(want), want)
		}
	}
}

// frameSums decodes the video of an MP4 file, and returns a checksum for each frame.
func frameSums(t *testing.T, content string) (sums []string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "ffmpeg", "-v", "fatal", "-f", "mov", "-i", "-", "-map", "0:v:0", "-f", "framemd5", "-")
	cmd.Stdin = strings.NewReader(content)
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(out)) {
		if !strings.HasPrefix(line, "#") {
			sums = append(sums, strings.TrimSpace(line[strings.LastIndexByte(line, ',')+1:]))
		}
	}
	return sums
}

func TestWriteManifests_UsesSegmentsOfPlaylists(t *testing.T) {
	t.Parallel()
	r := publish(t, makeClip(t, "a.mkv",
		"-f lavfi -i testsrc2=s=320x240:r=24000/1001:d=20 -f lavfi -i sine=d=20 -map 0 -map 1 -map 1 "+
			"-metadata:s:a:1 language=fre"+
			h264+"-c:a aac"))
	text, err := os.ReadFile(filepath.Join(r.dir, ManifestName))
	if err != nil {
		t.Fatal(err)
	}
	var m mpd
	if err := xml.Unmarshal(text, &m); err != nil {
		t.Fatal(err)
	}
	if len(m.Period.Sets) != 4 || m.Period.Sets[3].ContentType != "image" || m.Period.Sets[2].Language != "fr" ||
		m.Period.Sets[0].Streams[0].FrameRate != "24000/1001" {
		t.Errorf("manifest\n%s", text)
	}
	thumbnails := m.Period.Sets[3].Streams[0]
	first := strings.Replace(thumbnails.Template.Media, "$Number%03d$", "001", 1)
	sheet, err := jpeg.DecodeConfig(strings.NewReader(mustRead(t, filepath.Join(r.dir, first))))
	if err != nil || sheet.Width != thumbnails.Width || sheet.Height != thumbnails.Height ||
		thumbnails.Tiles.Value != "10x3" || thumbnails.Template.Duration != 30000 { // 21 pictures, one a second
		t.Errorf("thumbnails %+v are in sheets of %dx%d, %v", thumbnails, sheet.Width, sheet.Height, err)
	}
	// 480 frames are 20.020 s; the audio would be 20.032 s with the encoder delay.
	var length float64
	if _, err := fmt.Sscanf(m.Duration, "PT%fS", &length); err != nil || length < 20.019 || length > 20.022 {
		t.Errorf("%v: the manifest lasts %s; want PT20.020S", err, m.Duration)
	}
	all := append(append([]Rendition{}, r.out.Video...), r.out.Audio...)
	for i, set := range m.Period.Sets[:3] {
		count, ticks := 0, int64(0)
		for _, e := range set.Streams[0].Template.Timeline.Entries {
			count += 1 + e.Repeat
			ticks += int64(1+e.Repeat) * e.Length
		}
		got := float64(ticks) / float64(set.Streams[0].Template.Timescale)
		if set.ContentType == "audio" {
			got -= float64(encoderDelay) / sampleRate
		}
		if count != all[i].Segments || !isNear(got, all[i].Duration, 1e-6) {
			t.Errorf("set %d: %d segments in %.3f s; want %d in %.3f s", i, count, got, all[i].Segments, all[i].Duration)
		}
		if !strings.HasPrefix(set.Streams[0].Template.Media, all[i].Name+"/seg-") {
			t.Errorf("set %d: segments %q", i, set.Streams[0].Template.Media)
		}
	}
}

// The source has a flash and a beep in the third second.
func TestTranscode_KeepsAudioAndVideoInSync(t *testing.T) {
	t.Parallel()
	const frame = 1.0 / 30
	src := makeClip(t, "a.mp4",
		"-f lavfi -i color=black:s=320x240:r=30:d=4,drawbox=c=white:t=fill:enable='between(t\\,2\\,2.2)' "+
			"-f lavfi -i sine=f=1000:d=4,volume=0:enable='not(between(t\\,2\\,2.2))' -c:v libx264 -c:a aac")
	info, err := fastTools.Probe(t.Context(), src)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	// A preset with B-frames, which delay the picture.
	tools := Tools{Preset: "veryfast", Threads: 1}
	out, err := tools.Transcode(t.Context(), src, info, Ladder(info), dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := tools.WriteManifests(t.Context(), dir, out); err != nil {
		t.Fatal(err)
	}
	flash := firstTime(t, filepath.Join(dir, MasterName), "0:v",
		"-vf", "signalstats,metadata=mode=print:key=lavfi.signalstats.YAVG:file=-", 100)
	beep := firstTime(t, filepath.Join(dir, MasterName), "0:a",
		"-af", "asetnsamples=480,astats=metadata=1:reset=1,ametadata=mode=print:key=lavfi.astats.Overall.RMS_level:file=-",
		-40)
	if !isNear(flash, beep, frame) || !isNear(flash, 2, 2*frame) {
		t.Errorf("flash at %.3f s, beep at %.3f s; want both at 2", flash, beep)
	}
}

func mustRead(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
