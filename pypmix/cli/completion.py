"""`pypmix completion`: scripts that complete the command line in bash, zsh and fish, made from the parsers."""

from __future__ import annotations

import shlex

from pypmix.cli.options import OF_BOTH, OF_SESSIONS, OPTIONS
from pypmix.cli.usage import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Action
    from collections.abc import Mapping

    from pypmix.cli.parser import Parser

    Words = dict[str, list[tuple[str, str, bool]]]

FOLLOWED = {"run", "compat", "conform"}
"""The commands whose options are followed by the words of a program."""


def completion(shell: str, commands: Mapping[str, Parser]) -> str:
    """Return the script for a shell.

    Args:
        shell: `bash`, `zsh` or `fish`.
        commands: The parsers by the commands' names.

    Raises:
        UsageError: It is another shell.
    """
    words: Words = {"run": [(name, each.help, bool(each.metavar)) for each in OPTIONS for name in each.names]}
    words["run"].append(("--help", "Show a help and exit.", False))
    kept = [each for each in OPTIONS if each.field in OF_SESSIONS | OF_BOTH]
    words["session"] = [(name, each.help, bool(each.metavar)) for each in kept for name in each.names]
    words["session"] += [
        ("--foreground", "Stay until the session is stopped.", False),
        ("--json", "Print JSON.", False),
    ]
    for command, parser in commands.items():
        words[command] = [found for action in parser.actions for found in _options(action)]
    makers = {"bash": _bash, "zsh": _zsh, "fish": _fish}
    if shell not in makers:
        raise UsageError(f"a shell is one of {', '.join(makers)}, not {shell!r}")
    return makers[shell](words)


def _options(action: Action) -> list[tuple[str, str, bool]]:
    return [(name, (action.help or "").replace("%%", "%"), action.nargs != 0) for name in action.option_strings]


def _bash(words: Words) -> str:
    cases = []
    for command, options in words.items():
        names = " ".join([name for name, _, _ in options])
        valued = "|".join([name for name, _, value in options if value]) or "--"
        cases.append(f"        {command}) options={shlex.quote(names)}; valued={shlex.quote(valued)} ;;\n")
    return f"""\
# bash completion of pypmix: eval "$(pypmix completion bash)"
_pypmix() {{
    local word=${{COMP_WORDS[COMP_CWORD]}} command=${{COMP_WORDS[1]}} options= valued= at
    if [ "$COMP_CWORD" -eq 1 ]; then
        COMPREPLY=($(compgen -W '{" ".join(words)} --help --version' -- "$word"))
        return
    fi
    case $command in
{"".join(cases)}    esac
    case " {" ".join(sorted(FOLLOWED))} " in
    *" $command "*)
        # Behind the options stands a program with words of its own.
        for ((at = 2; at < COMP_CWORD; at++)); do
            case ${{COMP_WORDS[at]}} in
            -*) [[ "|$valued|" == *"|${{COMP_WORDS[at]}}|"* ]] && ((at++)) ;;
            *) COMPREPLY=($(compgen -f -- "$word")); return ;;
            esac
        done ;;
    esac
    if [[ $word == -* ]]; then
        COMPREPLY=($(compgen -W "$options" -- "$word"))
    elif [[ $command == run ]]; then
        COMPREPLY=($(compgen -c -- "$word") $(compgen -f -- "$word"))
    else
        COMPREPLY=($(compgen -f -- "$word"))
    fi
}}
complete -o filenames -F _pypmix pypmix
"""


def _zsh(words: Words) -> str:
    cases = []
    for command, options in words.items():
        specs = [f"{name}[{_plain(help)}]" + (":value:_files" if value else "") for name, help, value in options]
        rest = "*::program:_normal" if command in FOLLOWED else "*:argument:_files"
        listed = " ".join([shlex.quote(spec) for spec in (*specs, rest)])
        cases.append(f"        {command}) _arguments -S -A '-*' {listed} ;;\n")
    return f"""\
#compdef pypmix
# zsh completion of pypmix: eval "$(pypmix completion zsh)"
_pypmix() {{
    if ((CURRENT == 2)); then
        compadd -- {" ".join(words)} --help --version
        return
    fi
    local command=$words[2]
    shift words
    ((CURRENT--))
    case $command in
{"".join(cases)}    esac
}}
compdef _pypmix pypmix
"""


def _plain(text: str) -> str:
    return text.replace("[", "(").replace("]", ")").replace(":", "\\:")


def _fish(words: Words) -> str:
    lines = ["# fish completion of pypmix: pypmix completion fish | source\n"]
    lines.append("complete -c pypmix -n __fish_use_subcommand -f\n")
    for command, options in words.items():
        lines.append(f"complete -c pypmix -n __fish_use_subcommand -f -a {command}\n")
        for name, help, value in options:
            kind = "-l" if name.startswith("--") else "-o" if len(name) > 2 else "-s"
            lines.append(
                f"complete -c pypmix -n '__fish_seen_subcommand_from {command}' {kind} {name.lstrip('-')}"
                f" -d {shlex.quote(help)}{' -r' if value else ''}\n"
            )
    return "".join(lines)
