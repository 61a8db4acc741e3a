"""dfl completion: a script that lets the Tab key of a shell know all commands and options, read from the parser itself."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from dflearn.cli.answers import Answer
from dflearn.cli.arguments import add_command

WHERE = {
    "bash": "~/.local/share/bash-completion/completions/dfl",
    "zsh": "a folder of your $fpath, as _dfl",
    "fish": "~/.config/fish/completions/dfl.fish",
}


def add_commands(commands: Any) -> None:
    parser = add_command(
        commands,
        "completion",
        completion,
        "print a script that completes commands and options by the Tab key",
        "  dfl completion bash > ~/.local/share/bash-completion/completions/dfl\n"
        "  dfl completion zsh > ~/.zfunc/_dfl           with fpath+=~/.zfunc before compinit in ~/.zshrc\n"
        "  dfl completion fish > ~/.config/fish/completions/dfl.fish",
    )
    parser.add_argument("shell", choices=WHERE, help=", ".join(WHERE))


def completion(options: argparse.Namespace) -> Answer:
    from dflearn.cli import parser

    commands = list(commands_of(parser()))
    script = {"bash": bash, "zsh": zsh, "fish": fish}[options.shell](commands)
    return Answer(script.rstrip("\n"), {"shell": options.shell, "script": script})


class Option(NamedTuple):
    """An option: its spellings, what it is for, and what may follow: nothing, words to choose from, or (empty) a file."""

    spellings: tuple[str, ...]
    about: str
    takes: bool
    choices: tuple[str, ...]


class Command(NamedTuple):
    """A command by its words, such as ("paper", "table"): what may follow it."""

    words: tuple[str, ...]
    about: str
    commands: tuple[tuple[str, str], ...]
    options: tuple[Option, ...]
    choices: tuple[str, ...]


def commands_of(parser: argparse.ArgumentParser, words: tuple[str, ...] = (), about: str = "") -> Iterator[Command]:
    """The parser as a list of commands, itself first."""
    inner: dict[str, argparse.ArgumentParser] = {}
    helps: dict[str, str] = {}
    options: list[Option] = []
    choices: list[str] = []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            inner = dict(action.choices)
            helps = {one.dest: one.help or "" for one in action._choices_actions}
        elif action.option_strings:
            some = tuple(map(str, action.choices or ()))
            options.append(Option(tuple(action.option_strings), _plain(action.help), action.nargs != 0, some))
        else:
            choices += map(str, action.choices or ())
    named = tuple((name, _plain(helps.get(name))) for name in inner)
    yield Command(words, about, named, tuple(options), tuple(choices))
    for name, one in inner.items():
        yield from commands_of(one, (*words, name), _plain(helps.get(name)))


def _plain(text: str | None) -> str:
    """A help text on one line, without what a shell would take for its own."""
    return re.sub(r"[\"'`\\$\[\]:]", "", " ".join((text or "").split())).replace("%%", "%")


# -- scripts --------------------------------------------------------------------------------------------------------


def bash(commands: list[Command]) -> str:
    cases, values = [], []
    for one in commands:
        path = "/".join(one.words)
        words = [name for name, _ in one.commands] + [s for option in one.options for s in option.spellings]
        cases.append(f'    "{path}") words="{" ".join([*words, *one.choices])}" ;;')
        for option in one.options:
            if option.takes:
                some = f'words="{" ".join(option.choices)}"' if option.choices else "files=1"
                values += [f'    "{path} {spelling}") {some}; value=1 ;;' for spelling in option.spellings]
    known = " ".join(f'"{"/".join(one.words)}"' for one in commands if one.words)
    return f"""# bash completion of dfl, made by `dfl completion bash`
_dfl() {{
  local current="${{COMP_WORDS[COMP_CWORD]}}" previous="${{COMP_WORDS[COMP_CWORD-1]}}"
  local path="" word words="" files="" value="" known=({known})
  for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
    local next="${{path:+$path/}}$word" one
    for one in "${{known[@]}}"; do [[ $one == "$next" ]] && path="$next"; done
  done
  case "$path $previous" in
{chr(10).join(values)}
  esac
  if [[ -z $value ]]; then
    case "$path" in
{chr(10).join(cases)}
    esac
    [[ $current != -* ]] && files=1
  fi
  COMPREPLY=($(compgen -W "$words" -- "$current"))
  if [[ -n $files && ${{#COMPREPLY[@]}} -eq 0 ]]; then
    compopt -o filenames 2>/dev/null
    COMPREPLY=($(compgen -f -- "$current"))
  fi
}}
complete -F _dfl dfl
"""


def zsh(commands: list[Command]) -> str:
    functions = []
    for one in commands:
        lines = []
        for option in one.options:
            after = f":value:({' '.join(option.choices)})" if option.choices else ":file:_files"
            for spelling in option.spellings:
                lines.append(f"    '*{spelling}[{option.about}]{after if option.takes else ''}'")
        if one.commands:
            lines += ["    '1:command:->command'", "    '*::argument:->argument'"]
        else:
            lines.append(f"    '*:argument:({' '.join(one.choices)})'" if one.choices else "    '*:file:_files'")
        body = " \\\n".join(lines)
        inner = ""
        if one.commands:
            described = " ".join(f"'{name}:{about}'" for name, about in one.commands)
            cases = "\n".join(f"      {name}) {_function((*one.words, name))} ;;" for name, _ in one.commands)
            inner = f"""
  case $state in
    command) local -a commands=({described}); _describe command commands ;;
    argument) case $words[1] in
{cases}
    esac ;;
  esac"""
        functions.append(
            f"{_function(one.words)}() {{\n  local context state state_descr line\n  typeset -A opt_args\n"
            f"  _arguments -C \\\n{body}{inner}\n}}\n"
        )
    return (
        "#compdef dfl\n# zsh completion of dfl, made by `dfl completion zsh`\n"
        + "\n".join(functions)
        + ('\nif [ "$funcstack[1]" = "_dfl" ]; then _dfl "$@"; else compdef _dfl dfl; fi\n')
    )


def _function(words: tuple[str, ...]) -> str:
    return "_".join(["_dfl", *words])


def fish(commands: list[Command]) -> str:
    lines = ["# fish completion of dfl, made by `dfl completion fish`"]
    for one in commands:
        below = [name for name, _ in one.commands]
        seen = "; and ".join(f"__fish_seen_subcommand_from {word}" for word in one.words)
        none = f"not __fish_seen_subcommand_from {' '.join(below)}" if below else ""
        when = f" -n '{'; and '.join(filter(None, [seen, none]))}'" if seen or none else ""
        lines += [f"complete -c dfl{when} -f -a {name} -d '{about}'" for name, about in one.commands]
        lines += [f"complete -c dfl{when} -a '{' '.join(one.choices)}'"] if one.choices else []
        for option in one.options:
            names = "".join(f" -l {s[2:]}" if s.startswith("--") else f" -s {s[1:]}" for s in option.spellings)
            takes = f" -x -a '{' '.join(option.choices)}'" if option.choices else " -r" if option.takes else ""
            lines.append(f"complete -c dfl{when}{names}{takes} -d '{option.about}'")
    return "\n".join(lines) + "\n"
