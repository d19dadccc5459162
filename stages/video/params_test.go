package video

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/cuelight/cuelight/store"
)

func TestParseParams_ReadsEveryMember(t *testing.T) {
	t.Parallel()
	got, err := ParseParams(json.RawMessage(`{
		"title": "Holiday", "profile": "web", "profile_resolved_at": "2030-01-31T08:00:00Z", "custom": {"order": 7},
		"renditions": [240, "1080p", "720", 720], "codecs": ["h264", "av1", "av1"], "hdr": true, "quality": 20, "preset": "slow",
		"audio": {"bitrate": "96k", "loudness": -16, "surround": true, "default": 2},
		"poster": "25%", "mp4": "720", "preview": 12.50, "start": "1:00:01.5", "end": "90%", "encryption": "aes-128", "visibility": "public",
		"requires": ["gpu"], "prefers": ["north"]}`))
	if err != nil {
		t.Fatal(err)
	}
	want := Params{
		Title: "Holiday", Profile: "web", ProfileResolvedAt: time.Date(2030, 1, 31, 8, 0, 0, 0, time.UTC),
		Custom: json.RawMessage(`{"order": 7}`), Start: "3601.5", End: "90%",
		Settings: Settings{
			Renditions: []int{1080, 720, 240}, Codecs: []string{"av1"}, HDR: true, Quality: 20, Preset: "slow",
			Audio:  AudioSettings{Bitrate: 96000, Loudness: -16, Surround: true, Default: "2"},
			Poster: "25%", MP4: "720p", Preview: "12.5", Encryption: "aes-128", Visibility: "public",
			Requires: []string{"gpu"}, Prefers: []string{"north"},
		},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	for _, none := range []string{``, `{}`, `{"title": null, "renditions": null, "audio": null, "poster": null, "custom": null}`} {
		if p, err := ParseParams(json.RawMessage(none)); err != nil || !reflect.DeepEqual(p, Params{}) {
			t.Errorf("%s: %+v, %v", none, p, err)
		}
	}
}

func TestParseParams_SaysWhatIsAllowed(t *testing.T) {
	t.Parallel()
	for params, want := range map[string]string{
		`[]`:                                 `params: they must be a JSON object`,
		`{"qualty": 20}`:                     `params: unknown member "qualty"; allowed: title, description, start, end, profile, `,
		`{"Title": "a"}`:                     `params: unknown member "Title"; allowed: title`,
		`{"title": 7}`:                       `params: title must be a text, not 7`,
		`{"custom": 7}`:                      `params: custom must be an object, not 7`,
		`{"profile": ""}`:                    `profile: the name must have 1 to 64 lower-case letters`,
		`{"profile": "Web"}`:                 `profile: the name must have 1 to 64 lower-case letters`,
		`{"profile": "-w"}`:                  `profile: the name must have 1 to 64 lower-case letters`,
		`{"profile_resolved_at": "now"}`:     `params: profile_resolved_at must be a time, which Cuelight sets, not "now"`,
		`{"renditions": []}`:                 `params: renditions must be a list of heights, at least one of 2160, 1440, `,
		`{"renditions": "1080p"}`:            `params: renditions must be a list of heights`,
		`{"renditions": [1081]}`:             `params: renditions: "1081" is not a height; allowed: 2160, 1440, 1080, 720, 480, 360, 240`,
		`{"renditions": [1080.5]}`:           `params: renditions: "1080.5" is not a height`,
		`{"codecs": "av1"}`:                  `params: codecs must be a list of h264, hevc, av1; h264 is always made, not "av1"`,
		`{"codecs": ["vp9"]}`:                `params: codecs must be a list of h264, hevc, av1`,
		`{"hdr": "keep"}`:                    `params: hdr must be true or false, not "keep"`,
		`{"quality": 14}`:                    `params: quality must be a whole number from 15 (best) to 40, or auto, not 14`,
		`{"quality": 41}`:                    `params: quality must be a whole number from 15`,
		`{"quality": "20"}`:                  `params: quality must be a whole number from 15`,
		`{"preset": "fastest"}`:              `params: preset must be one of ultrafast, superfast, veryfast, faster`,
		`{"audio": 7}`:                       `params: audio must be an object, not 7`,
		`{"audio": {"channels": 6}}`:         `params: audio: unknown member "channels"; allowed: bitrate, loudness, surround, default`,
		`{"audio": {"surround": "keep"}}`:    `params: audio.surround must be true or false, not "keep"`,
		`{"audio": {"default": 0}}`:          `params: audio.default must be a language such as "de", or the number of`,
		`{"audio": {"default": "German"}}`:   `params: audio.default must be a language`,
		`{"audio": {"default": true}}`:       `params: audio.default must be a language`,
		`{"audio": {"bitrate": 128}}`:        `params: audio.bitrate must be bits per second from 32000 to 320000, such as`,
		`{"audio": {"bitrate": "400k"}}`:     `params: audio.bitrate must be bits per second`,
		`{"audio": {"bitrate": 9e18}}`:       `params: audio.bitrate must be bits per second`,
		`{"audio": {"loudness": -41}}`:       `params: audio.loudness must be LUFS from -40 to -5, such as -16, or null`,
		`{"audio": {"loudness": "-16"}}`:     `params: audio.loudness must be LUFS`,
		`{"poster": -1}`:                     `params: poster must be a number of seconds such as 12.5, a time such as "0:01:30", or a share`,
		`{"poster": "0:-1"}`:                 `params: poster must be a number of seconds`,
		`{"poster": "1:2:3:4"}`:              `params: poster must be a number of seconds`,
		`{"start": "0:10", "end": 10}`:       `params: end (10 s) must be after start (10 s)`,
		`{"start": "50%", "end": "25%"}`:     `params: end (25%) must be after start (50%)`,
		`{"end": 0}`:                         `params: end (0 s) must be after start (0 s)`,
		`{"poster": "101%"}`:                 `params: poster must be a number of seconds`,
		`{"poster": "NaN"}`:                  `params: poster must be a number of seconds`,
		`{"preview": "-1"}`:                  `params: preview must be a number of seconds such as 12.5, a time such as "0:01:30", or a share`,
		`{"mp4": 1081}`:                      `params: mp4 must be one of 2160, 1440, 1080, 720, 480, 360, 240, or max, not 1081`,
		`{"mp4": "maxp"}`:                    `params: mp4 must be one of 2160`,
		`{"mp4": true}`:                      `params: mp4 must be one of 2160`,
		`{"automatic_captions": "pt-BR"}`:    `params: automatic_captions must be true, false, or the code of the language that is spoken`,
		`{"automatic_captions": 1}`:          `params: automatic_captions must be true, false`,
		`{"encryption": "none"}`:             `params: encryption must be aes-128, or null for none, not "none"`,
		`{"visibility": "private"}`:          `params: visibility must be public or signed, not "private"`,
		`{"requires": "gpu"}`:                `params: requires must be a list of labels, not "gpu"`,
		`{"prefers": ["a b"]}`:               `params: prefers: label "a b": a label has`,
		`{"title": "` + string('\xff') + `}`: `params: they must be a JSON object`,
	} {
		_, err := ParseParams(json.RawMessage(params))
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", params, err, want)
		}
		if _, ok := errors.AsType[*ParamsError](err); !ok || !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%s: %T", params, err)
		}
	}
	_, err := ParseSettings(json.RawMessage(`{"title": "a"}`))
	if err == nil || !strings.HasPrefix(err.Error(), `profile: unknown member "title"; allowed: renditions, codecs`) {
		t.Errorf("a profile with a title: %v", err)
	}
}

func TestParseParams_ReadsTheLanguageOfAutomaticCaptions(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]string{
		`null`: "", `false`: "", `true`: "auto", `"auto"`: "auto", `"de"`: "de", `"deu"`: "de", `"YUE"`: "yue",
	} {
		p, err := ParseParams(json.RawMessage(`{"automatic_captions": ` + value + `}`))
		if err != nil || p.AutomaticCaptions != want || strings.Contains(p.String(), "automatic captions: "+want) != (want != "") {
			t.Errorf("%s: %q %q, %v; want %q", value, p.AutomaticCaptions, p, err, want)
		}
	}
}

func TestIsPublic_FollowsTheParams(t *testing.T) {
	t.Parallel()
	for params, want := range map[string]bool{
		``: false, `{"visibility": null}`: false, `{"visibility": "signed"}`: false, `{"visibility": "public"}`: true,
		`{"visibility": "public", "qualty": 20}`: false, `[]`: false,
	} {
		if got := IsPublic(json.RawMessage(params)); got != want {
			t.Errorf("%s: %t", params, got)
		}
	}
}

func TestEdit_ChangesWhatIsGiven(t *testing.T) {
	t.Parallel()
	params := json.RawMessage(`{"title":"a","visibility":"signed"}`)
	for change, want := range map[string]string{
		`{"visibility": "public"}`:             `{"title":"a","visibility":"public"}`,
		`{"title": "b", "description": "c d"}`: `{"description":"c d","title":"b","visibility":"signed"}`,
		`{"title": ""}`:                        `{"visibility":"signed"}`,
		`{"visibility": ""}`:                   `params: visibility must be public or signed, not ""`,
		`{}`:                                   "params: there is nothing to change: give title, description or visibility",
	} {
		var e Edit
		if err := json.Unmarshal([]byte(change), &e); err != nil {
			t.Fatal(err)
		}
		changed, err := e.Apply(params)
		got := string(changed)
		if err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: %s", change, got)
		}
	}
	title := "a"
	if changed, err := (Edit{Title: &title}).Apply(nil); err != nil || string(changed) != `{"title":"a"}` {
		t.Errorf("of no params: %s, %v", changed, err)
	}
}

func TestApplyProfile_KeepsWhatTheSubmissionSets(t *testing.T) {
	t.Parallel()
	at := time.Date(2030, 1, 31, 8, 0, 0, 0, time.UTC)
	profile := `{"renditions": [1080, 720], "quality": 30, "audio": {"bitrate": 96000, "loudness": -16}, "requires": ["gpu"]}`
	for params, want := range map[string]string{
		``: `{"audio":{"bitrate":96000,"loudness":-16},"profile":"web","profile_resolved_at":"2030-01-31T08:00:00Z",
		     "quality":30,"renditions":[1080,720],"requires":["gpu"]}`,
		`{"title": "a", "quality": 20, "renditions": null, "audio": {"loudness": null}, "requires": ["cpu"]}`: `{
		     "audio":{"bitrate":96000,"loudness":null},"profile":"web","profile_resolved_at":"2030-01-31T08:00:00Z",
		     "quality":20,"renditions":null,"requires":["cpu"],"title":"a"}`,
		`{"audio": null}`: `{"audio":null,"profile":"web","profile_resolved_at":"2030-01-31T08:00:00Z",
		     "quality":30,"renditions":[1080,720],"requires":["gpu"]}`,
	} {
		got, err := ApplyProfile(json.RawMessage(params), "web", json.RawMessage(profile), at)
		want = strings.NewReplacer("\n", "", "\t", "", "     ", "").Replace(want)
		if err != nil || string(got) != want {
			t.Errorf("%s: %v, got\n%s, want\n%s", params, err, got, want)
		}
		if _, err := ParseParams(got); err != nil {
			t.Error(err)
		}
	}
}

func TestTakePlacement_MovesLabelsToTheTranscode(t *testing.T) {
	t.Parallel()
	given := map[string]store.Placement{
		"transcode": {Requires: []string{"a"}, Wait: time.Second}, "metadata": {Requires: []string{"m"}},
	}
	sub := store.Submission{Params: []byte(`{"title":"t","requires":["b","a"],"prefers":["c"]}`), Placement: given}
	if err := TakePlacement(&sub); err != nil {
		t.Fatal(err)
	}
	want := map[string]store.Placement{
		"transcode": {Requires: []string{"a", "b"}, Prefers: []string{"c"}, Wait: time.Second}, "metadata": {Requires: []string{"m"}},
	}
	if !reflect.DeepEqual(sub.Placement, want) || string(sub.Params) != `{"title":"t"}` {
		t.Errorf("%+v, %s", sub.Placement, sub.Params)
	}
	if len(given["transcode"].Requires) != 1 {
		t.Error("the placement of other submissions changed")
	}
	unchanged := store.Submission{Params: []byte(`{ "title": "t" }`)}
	if err := TakePlacement(&unchanged); err != nil || string(unchanged.Params) != `{ "title": "t" }` || unchanged.Placement != nil {
		t.Errorf("%+v, %v", unchanged, err)
	}
}

func TestIngest_RejectsInvalidAndUnresolvedParams(t *testing.T) {
	t.Parallel()
	for params, want := range map[string]string{
		`{"quality": 99}`:       "params: quality must be",
		`{"profile": "web"}`:    `params: nothing has resolved the profile "web", because the task was inserted with SQL`,
		`{"requires": ["gpu"]}`: "params: requires and prefers have no effect",
	} {
		h := newHarness(t, clips.picture)
		h.job.Params = []byte(params)
		_, err := h.ingest(t.Context(), h.job)
		wantPermanent(t, params, err)
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v", params, err)
		}
		if names := list(t, h.DataDir); len(names) > 0 {
			t.Errorf("%s: ingest left %q", params, names)
		}
	}
}

func TestSettings_AreDescribedInWords(t *testing.T) {
	t.Parallel()
	for definition, want := range map[string]string{
		`{}`: "",
		`{"renditions": [1080, 720], "quality": 20, "preset": "slow", "audio": {"bitrate": "96k", "loudness": -16}, "poster": 12.5,
		  "requires": ["gpu"], "prefers": ["north", "big"]}`: "renditions 1080p 720p, quality 20, preset slow, audio 96 kbit/s, " +
			"loudness -16 LUFS, poster at 12.5 s, requires gpu, prefers north big",
		`{"poster": "25%", "mp4": 720, "preview": 0}`: "poster at 25%, MP4 720p, preview at 0 s",
		`{"mp4": "max", "preview": "1%"}`:             "MP4 max, preview at 1%",
	} {
		if s, err := ParseSettings(json.RawMessage(definition)); err != nil || s.String() != want {
			t.Errorf("%s: %q, %v", definition, s.String(), err)
		}
	}
}
