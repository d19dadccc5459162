package media

import (
	"encoding/xml"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cuelight/cuelight/internal/browsertest"
)

// oneByOne is sound in 5.1, in which each channel has a low tone for half a second, one after the other, and all have one later.
var oneByOne = func() string {
	var channels []string
	for c := range surround {
		channels = append(channels, fmt.Sprintf("0.4*sin(2*PI*90*t)*(between(t\\,%g\\,%g)+gte(t\\,3))", float64(c)/2, float64(c+1)/2))
	}
	return "-f lavfi -i aevalsrc='" + strings.Join(channels, "|") + "':s=48000:c=5.1:d="
}()

// wantOneByOne requires that each of so many channels of a rendition sounds alone in its half of a second.
func wantOneByOne(t *testing.T, file string, channels int) {
	t.Helper()
	levels := channelLevels(t, file)
	for c := range channels {
		if len(levels) < channels || len(levels[c]) != surround {
			t.Fatalf("%d levels of %d channels", len(levels), len(levels[0]))
		}
		for other, level := range levels[c] {
			if isLoud := level > -25; isLoud != (other == c) || !isLoud && level > -50 {
				t.Errorf("while channel %d sounds, channel %d has %.1f dB", c, other, level)
			}
		}
	}
}

// surroundClip is a picture, 5.1, and a commentary in stereo.
func surroundClip(t *testing.T, seconds string) string {
	t.Helper()
	return makeClip(t, "a.mkv", testPictures+seconds+" "+oneByOne+seconds+" -f lavfi -i "+chirp+":d="+seconds+
		" -map 0 -map 1 -map 2"+closedGroups+"-c:a pcm_s16le -ac:a:1 2 -metadata:s:a language=eng "+
		"-disposition:a:0 default -disposition:a:1 comment")
}

func TestTranscode_MakesSurroundNextToStereo(t *testing.T) {
	t.Parallel()
	r := publishLadder(t, fastTools, surroundClip(t, "7"), LadderOptions{Surround: true})
	var got []string
	for _, a := range r.out.Audio {
		probed := tool(t, "ffprobe", "-loglevel", "error", "-show_entries", "stream=channels,channel_layout", "-of", "csv=p=0",
			filepath.Join(r.dir, a.Playlist))
		line, _, _ := strings.Cut(string(probed), "\n")
		got = append(got, fmt.Sprintf("%s %d %s %t %s", a.Name, a.Channels, a.Role, a.Default, line))
	}
	want := []string{"audio 2  true 2,stereo", "audio-2 2 commentary false 2,stereo", "audio-surround 6  true 6,5.1"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	wantOneByOne(t, filepath.Join(r.dir, "audio-surround", playlistName), surround)

	var m mpd
	if err := xml.Unmarshal([]byte(mustRead(t, filepath.Join(r.dir, ManifestName))), &m); err != nil {
		t.Fatal(err)
	}
	got = nil
	for _, set := range m.Period.Sets[1:4] {
		s := set.Streams[0]
		got = append(got, fmt.Sprintf("%s %s channels %s, priority %d", s.ID, set.Role.Value, s.Channels.Value, set.Priority))
	}
	want = []string{"audio main channels 2, priority 2", "audio-2 commentary channels 2, priority 0",
		"audio-surround main channels 6, priority 0"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	browsertest.Require(t).Play(t, map[string]browsertest.Video{"surround": {Dir: r.dir, Length: 7 * time.Second}},
		browsertest.PlayOptions{})
}

func TestCheckDelivered_KnowsSurround(t *testing.T) {
	t.Parallel()
	h := transcodeLadder(t, surroundClip(t, "7"), LadderOptions{Surround: true, Loudness: -20})
	dir := deliver(t, h.dir, h.info, h.rungs)
	out, err := h.check(t.Context(), dir, h.out)
	if err != nil || len(out.Audio) != 3 || out.Audio[2] != h.out.Audio[2] {
		t.Errorf("%v: %+v", err, out)
	}
	removeAll(t, filepath.Join(dir, "audio-surround"))
	if _, err := h.check(t.Context(), dir, h.out); err == nil {
		t.Error("it may be missing")
	}
	if err := os.CopyFS(filepath.Join(dir, "audio-surround"), os.DirFS(filepath.Join(h.dir, "audio"))); err != nil {
		t.Fatal(err)
	}
	_, err = h.check(t.Context(), dir, h.out)
	wantRefused(t, err, "it has 2 channels instead of 6")
}

func TestJoinChunks_JoinsSurround(t *testing.T) {
	t.Parallel()
	d := probed(t, surroundClip(t, "13"))
	d.rungs = LadderWith(d.info, LadderOptions{Surround: true})
	d.divide(t, 6*time.Second)
	d.transcodePieces(t)
	d.join(t)
	if len(d.out.Audio) != 3 || d.out.Audio[2].Channels != surround {
		t.Errorf("joined %+v", d.out.Audio)
	}
	d.wantPiecesAccepted(t)
}

// Of 7.1, the channels at the sides are mixed with those in the back.
func TestTranscode_MakesSurroundOfOtherSources(t *testing.T) {
	t.Parallel()
	var tracks string
	for c := range surround {
		tracks += fmt.Sprintf("-f lavfi -i aevalsrc=0.4*sin(2*PI*90*t)*between(t\\,%g\\,%g):s=48000:d=3 ", float64(c)/2, float64(c+1)/2)
	}
	for c := range surround {
		tracks += "-map " + strconv.Itoa(c) + " "
	}
	for name, tt := range map[string]struct {
		src      string
		channels int
	}{
		"6 channels without names": {channelClip(t, 6), 6},
		"8 channels without names": {channelClip(t, 8), 4},
		"without timestamps":       {makeClip(t, "sound.ac3", oneByOne+"4 -c:a ac3"), 6},
		"six mono tracks":          {makeClip(t, "sound.mov", tracks+"-c:a pcm_s16le"), 6},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := publishLadder(t, fastTools, tt.src, LadderOptions{Surround: true})
			if i := slices.IndexFunc(r.out.Audio, func(a Rendition) bool { return a.Name == "audio-surround" }); i != 2 {
				t.Fatalf("renditions %+v", r.out.Audio)
			}
			wantOneByOne(t, filepath.Join(r.dir, "audio-surround", playlistName), tt.channels)
		})
	}
}

func TestLadderWith_AddsSurroundIfTheSourceHasIt(t *testing.T) {
	t.Parallel()
	stream := func(channels int, layout string) Audio { return Audio{Channels: channels, Layout: layout} }
	for _, c := range []struct {
		audio []Audio
		want  string // the directories
	}{
		{[]Audio{stream(6, "5.1(side)")}, "audio audio-surround"},
		{[]Audio{stream(2, "stereo"), stream(8, "7.1"), stream(6, "")}, "audio audio-2 audio-3 audio-surround-2 audio-surround-3"},
		{[]Audio{stream(5, "5.0"), stream(2, "stereo")}, "audio audio-2"},
		{[]Audio{stream(16, "hexadecagonal")}, "audio"}, // ffmpeg cannot mix them
		{[]Audio{stream(10, "")}, "audio"},
		{nil, ""},
	} {
		info := &Info{Video: &Video{Width: 320, Height: 240, FPS: 25}, Audio: c.audio}
		rungs := LadderWith(info, LadderOptions{Surround: true, AudioBitrate: 64_000, Loudness: -16})
		_, jobs := renditionJobs(info, rungs)
		if got := strings.Join(renditionDirs(jobs), " "); got != c.want {
			t.Errorf("%+v gives %s; want %s", c.audio, got, c.want)
		}
		if last := rungs[len(rungs)-1]; last.Channels > 0 && (last.AudioBitrate != 384_000 || last.Loudness != -16) {
			t.Errorf("rung %+v", last)
		}
		if without := LadderWith(info, LadderOptions{}); slices.ContainsFunc(without, func(r Rung) bool { return r.Channels > 0 }) {
			t.Errorf("not asked for: %+v", without)
		}
	}
}

func TestProbe_KnowsTheRolesOfSounds(t *testing.T) {
	t.Parallel()
	src := makeClip(t, "a.mkv", "-f lavfi -i sine=d=1 -map 0 -map 0 -map 0 -map 0 -map 0 -disposition:a:0 default -disposition:a:1 comment "+
		"-disposition:a:2 visual_impaired -disposition:a:3 hearing_impaired -disposition:a:4 original -c:a flac")
	info, err := fastTools.Probe(t.Context(), src)
	if err != nil {
		t.Fatal(err)
	}
	got := map[int]string{}
	for _, a := range info.Audio {
		got[a.Index] = a.Role
	}
	want := map[int]string{0: "", 1: roleCommentary, 2: roleDescription, 3: roleClearSpeech, 4: ""}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestSetDefaultAudio_ChoosesByLanguageOrNumber(t *testing.T) {
	t.Parallel()
	for choice, want := range map[string]string{
		"": "[2 1 3 4]", "de": "[1 2 3 4]", "deu": "[1 2 3 4]", "DE-at": "[1 2 3 4]", "pt": "[3 2 1 4]", "pt-BR": "[4 2 1 3]",
		"1": "[1 2 3 4]", "2": "[2 1 3 4]", "4": "[4 2 1 3]",
		"fr": "[2 1 3 4] the default sound is that of the source: it has none in the language fr",
		"5":  "[2 1 3 4] the default sound is that of the source: it has no audio stream of the number 5",
		"0":  "[2 1 3 4] the default sound is that of the source: it has no audio stream of the number 0",
	} {
		info := &Info{Audio: []Audio{
			{Index: 2, Language: "en", Default: true}, {Index: 1, Language: "ger"}, {Index: 3, Language: "pt-pt"}, {Index: 4, Language: "pt-br"},
		}}
		info.SetDefaultAudio(choice)
		var order []int
		for i, a := range info.Audio {
			order = append(order, a.Index)
			if a.Default != (i == 0) {
				t.Errorf("%s: %+v", choice, info.Audio)
			}
		}
		if got := strings.TrimSpace(fmt.Sprint(order) + " " + strings.Join(info.Warnings, "")); got != want {
			t.Errorf("%s: %s; want %s", choice, got, want)
		}
	}
}
