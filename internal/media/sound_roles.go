package media

// The purposes of sounds other than the main one, by DASH's names.
const (
	roleDescription = "description"
	roleCommentary  = "commentary"
	roleClearSpeech = "enhanced-audio-intelligibility"
	roleDub         = "dub"
)

// audioRoles say how manifests and menus describe sounds that are not the main one.
var audioRoles = map[string]struct {
	name           string // in menus; empty: that of the language is enough
	characteristic string // of HLS
	purpose        string // of TV-Anytime's AudioPurposeCS, for DASH
}{
	roleDescription: {"description", "public.accessibility.describes-video", "1"},
	roleCommentary:  {name: "commentary"},
	roleClearSpeech: {"clear speech", "public.accessibility.enhances-speech-intelligibility", "2"},
}

// audioRole is the role of an audio stream; empty if it is the main sound.
func (s *rawStream) audioRole() string {
	switch d := s.Disposition; {
	case d.Impaired != 0:
		return roleDescription
	case d.Comment != 0:
		return roleCommentary
	case d.SDH != 0:
		return roleClearSpeech
	case d.Dub != 0:
		return roleDub
	}
	return ""
}
